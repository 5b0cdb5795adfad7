"""The attention functions of a training loop: how they are found, replaced for one step, and how a call is read."""

import contextlib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from gprojci_suite import masks

Function = Callable[..., Any]
SDPA_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
NAMES = {
    "q": ("query", "q"),
    "k": ("key", "k"),
    "v": ("value", "v"),
    "causal": ("is_causal", "causal"),
    "scale": ("scale", "softmax_scale", "sm_scale"),
    "mask": ("attn_mask", "attention_mask", "mask"),
    "dropout": ("dropout_p", "dropout"),
}
"""What the parameters of attention functions are called."""
BOUNDS, LONGEST = ("cu_seqlens_q", "cu_seqlens_k"), ("max_seqlen_q", "max_seqlen_k")
"""What tells functions of packed sequences where they end, and how long the longest is."""
QKV = frozenset(name for part in ("q", "k", "v") for name in NAMES[part])
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "window_size": (None, (-1, -1), (None, None), [-1, -1]),
    "softcap": (None, 0, 0.0),
    "alibi_slopes": (None,),
    "learnable_sink": (None,),
    "score_mod": (None,),
    "mask_mod": (None,),
    "qv": (None,),
    "seqused_q": (None,),
    "seqused_k": (None,),
    "block_table": (None,),
    "page_table": (None,),
}
"""Parameters that change what is computed, with the values that do not."""


class Unreadable(ValueError):
    """A call that an input set cannot hold; the message is the reason."""


def reason_of(error: Exception) -> str:
    """Why a call is left out, in one line: what it is, or what nobody foresaw."""
    return str(error) if isinstance(error, Unreadable) else f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Target:
    """A function whose calls are recorded.

    Attributes:
        where: `module:function`, or `module:Class.method`.
        layout: order of the dimensions of q, k, v and the result: `bhsd` is (batch, heads, seq, head_dim), `bshd`
            (batch, seq, heads, head_dim), `thd` (tokens, heads, head_dim): sequences one after another, whose bounds
            are told by `cu_seqlens_q` and `cu_seqlens_k`. Of these the first is read.
        parameters: names of the positional parameters, where the function does not tell them.
        top_left: whether its causal mask is aligned to the top left when there are fewer queries than keys.
        torch_mask: whether its mask is what torch's is: of bool, True where a logit counts, or added to the logits.
            Others mean the opposite, or factors; of theirs only a causal one is understood.
    """

    where: str
    layout: Literal["bhsd", "bshd", "thd"] = "bhsd"
    parameters: tuple[str, ...] = ()
    top_left: bool = False
    torch_mask: bool = False

    def turned(self, tensor: Tensor, length: int | None = None) -> Tensor:
        """A view in the target's order of dimensions as (batch, heads, seq, head_dim), and the other way round.

        Args:
            tensor: q, k, v, the result, or a gradient of them.
            length: tokens of the first sequence, which alone is taken of packed ones.
        """
        if self.layout == "thd":
            return tensor[:length].transpose(0, 1)[None] if tensor.dim() == 3 else tensor[0].transpose(0, 1)
        return tensor.transpose(1, 2) if self.layout == "bshd" else tensor


STANDARD = (
    Target("torch.nn.functional:scaled_dot_product_attention", "bhsd", SDPA_PARAMETERS, top_left=True, torch_mask=True),
    Target("flash_attn.flash_attn_interface:flash_attn_func", "bshd"),
    Target("flash_attn_interface:flash_attn_func", "bshd"),
    Target("flash_attn.cute.interface:flash_attn_func", "bshd"),
    Target("flash_attn.flash_attn_interface:flash_attn_varlen_func", "thd"),
    Target("flash_attn_interface:flash_attn_varlen_func", "thd"),
    Target("flash_attn.cute.interface:flash_attn_varlen_func", "thd"),
)
"""Recorded unless `wrap` names others: what torch and the flash-attn packages are called by."""


@dataclass(frozen=True)
class Call:
    """q, k and v of one call, (batch, heads, seq, head_dim), as views; mask and scale.

    `mask` is None where causal says it all; else that of the first sequence, of bool or added to the logits. Packed
    sequences are counted in `sequences`; q, k and v are the first.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    causal: bool
    softmax_scale: float
    sequences: int
    mask: Tensor | None = None


class Patches:
    """The replaced functions, until `undo`."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def replace(self, target: Target, make: Callable[[Target, Function], Function]) -> None:
        """Put `make(target, original)` wherever a loaded module holds the function under any name."""
        owner, name = _owner(target)
        original = getattr(owner, name)
        replacement = make(target, original)
        self._set(owner, name, replacement)
        for module_name, module in list(sys.modules.items()):
            # Whoever wrote `from torch.nn.functional import …` holds the function itself.
            if isinstance(module, ModuleType) and not module_name.startswith(("torch._", "gprojci_suite")):
                for attribute, value in list(vars(module).items()):
                    if value is original:
                        self._set(module, attribute, replacement)

    def undo(self) -> None:
        """Put every original back."""
        while self._undo:
            owner, name, original = self._undo.pop()
            setattr(owner, name, original)

    def _set(self, owner: Any, name: str, replacement: Any) -> None:
        self._undo.append((owner, name, vars(owner)[name] if name in vars(owner) else getattr(owner, name)))
        setattr(owner, name, replacement)


def loaded(target: Target) -> bool:
    """Whether the module of a target has been imported, and has it."""
    module = sys.modules.get(target.where.partition(":")[0])
    return module is not None and hasattr(module, target.where.partition(":")[2].partition(".")[0])


def find(where: str | Target) -> Target:
    """The target a user named, its module imported; raises ValueError when there is no such callable."""
    target = where if isinstance(where, Target) else Target(where)
    module, colon, name = target.where.partition(":")
    if not (module and colon and name):
        raise ValueError(f"{target.where!r} must have the form module:function")
    try:
        importlib.import_module(module)
        owner, attribute = _owner(target)
        function = getattr(owner, attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{target.where}: {error}") from error
    if not callable(function):
        raise ValueError(f"{target.where} is not callable")
    return target


@contextlib.contextmanager
def watching(
    targets: Sequence[Target], saw: Callable[[Target, Function, Sequence[Any], dict[str, Any], Any], None]
) -> Iterator[None]:
    """Let `saw` have target, function, arguments and result of every call of the loaded targets.

    Of calls within such a call only the outermost is seen. Its q, k and v are views of what was given, so that their
    gradients are those of the call alone, whatever else is made of the tensors. Compiled code, which would not call
    what stands in the functions' place, runs eagerly meanwhile.
    """
    inside = False

    def watched(target: Target, original: Function) -> Function:
        @functools.wraps(original, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:
                return original(*args, **kwargs)
            inside = True
            args, kwargs = _viewed(target, original, args, kwargs)
            try:
                result = original(*args, **kwargs)
            finally:
                inside = False
            saw(target, original, args, kwargs, result)
            return result

        return call

    patches = Patches()
    with torch.compiler.set_stance("force_eager"):
        try:
            for target in targets:
                if loaded(target):
                    patches.replace(target, watched)
            yield
        finally:
            patches.undo()


def _viewed(
    target: Target, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with views in place of q, k and v."""

    def view(name: str, value: Any) -> Any:
        plain = name in QKV and type(value) in (Tensor, torch.nn.Parameter) and not value.is_nested
        return value.view_as(value) if plain and value.requires_grad else value

    first = tuple(view(name, value) for name, value in zip(_parameters(target, function), args, strict=False))
    return (*first, *args[len(first) :]), {name: view(name, value) for name, value in kwargs.items()}


def by_name(target: Target, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of its parameters."""
    return {**dict(zip(_parameters(target, function), args, strict=False)), **kwargs}


def _parameters(target: Target, function: Function) -> tuple[str, ...]:
    """Names of the positional parameters; none where neither target nor function tells them."""
    try:
        return target.parameters or tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def name_of(what: str, given: Mapping[str, Any]) -> str:
    """Under which of its NAMES a call was given something; empty where under none."""
    return next((name for name in NAMES[what] if name in given), "")


def read(target: Target, given: Mapping[str, Any], *, masks_allowed: bool = False) -> Call:
    """q, k, v, mask and scale of one call, given what `by_name` returns.

    Raises:
        Unreadable: the call computes something else; a mask other than the causal one too unless `masks_allowed`.
    """
    found = {what: given.get(name_of(what, given)) for what in NAMES}
    packed = target.layout == "thd"
    dimensions, spelled = (3, "three") if packed else (4, "four")
    tensors = [t for t in (found["q"], found["k"], found["v"]) if isinstance(t, Tensor) and t.dim() == dimensions]
    if len(tensors) < 3:
        raise Unreadable(f"q, k and v are not three tensors of {spelled} dimensions")
    lengths = [_first_length(given, name) if packed else None for name in BOUNDS]
    q, k, v = (target.turned(part, length) for part, length in zip(tensors, (*lengths, lengths[1]), strict=True))
    for name, neutral in NEUTRAL.items():
        if name in given and not any(type(given[name]) is type(n) and given[name] == n for n in neutral):
            raise Unreadable(f"{name} is set")
    if found["dropout"]:
        raise Unreadable("dropout is on")
    causal = bool(found["causal"])
    if causal and target.top_left and q.shape[2] != k.shape[2]:
        raise Unreadable("the causal mask is aligned to the top left")
    mask, scale = found["mask"], found["scale"]
    if mask is not None and not causal and _is_causal(mask, q.shape[2], k.shape[2]):
        causal, mask = True, None
    if mask is not None and (causal or not (masks_allowed and target.torch_mask)):
        raise Unreadable("a mask is given that is not the causal one")
    if mask is not None and not _fits(mask, q, k):
        raise Unreadable("a mask is given whose shape is not that of the logits")
    sequences = given[BOUNDS[0]].numel() - 1 if packed else q.shape[0]
    scale = float(q.shape[-1] ** -0.5 if scale is None else scale)
    return Call(q, k, v, causal, scale, sequences, None if mask is None else _first(mask))


def of_the_first(given: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """What a call is given beside q, k and v, for its first sequence alone."""
    rest = {name: value for name, value in given.items() if name not in QKV}
    mask = name_of("mask", given)
    if isinstance(rest.get(mask), Tensor):
        rest[mask] = _first(rest[mask])
    for bound, longest, part in zip(BOUNDS, LONGEST, (call.q, call.k), strict=True):
        if isinstance(rest.get(bound), Tensor):
            rest[bound] = rest[bound].new_tensor([0, part.shape[2]])
            rest[longest] = part.shape[2]
    return rest


def _first(mask: Tensor) -> Tensor:
    """The part of a mask that is of the first sequence."""
    return mask[:1] if mask.dim() == 4 else mask


def _first_length(given: Mapping[str, Any], name: str) -> int:
    bounds = given.get(name)
    if not isinstance(bounds, Tensor) or bounds.numel() < 2:
        raise Unreadable(f"{name} does not tell where sequences end")
    if (length := int(bounds[1])) < 1:
        raise Unreadable("the first sequence is empty")
    return length


def _owner(target: Target) -> tuple[Any, str]:
    module, _, path = target.where.partition(":")
    owner: Any = sys.modules[module]
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


def _fits(mask: Any, q: Tensor, k: Tensor) -> bool:
    if not isinstance(mask, Tensor) or mask.dim() > 4:
        return False
    logits = (k.shape[2], *reversed(q.shape[:3]))
    return all(size in (1, whole) for size, whole in zip(reversed(mask.shape), logits, strict=False))


def _is_causal(mask: Any, seq_q: int, seq_k: int) -> bool:
    if not isinstance(mask, Tensor) or mask.shape[-2:] != (seq_q, seq_k):
        return False
    visible = mask if mask.dtype == torch.bool else mask == 0
    hidden = ~mask if mask.dtype == torch.bool else mask == -torch.inf
    wanted = masks.bottom_right(seq_q, seq_k, mask.device)
    return bool((visible == wanted).all()) and bool((hidden == ~wanted).all())
