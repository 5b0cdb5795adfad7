"""The alarm for a training loop of one's own: now and then, how far dq is from float64, and what moves with the keys;
where asked for, how far dk is from float64 as well.

```python
from gprojci_suite.capture import watch

watcher = watch(model, every=500)  # after torch.compile or a wrapper, on what they return
train(model)
watcher.close()
```
"""

import functools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gprojci_suite.capture.response import WARN_AT
from gprojci_suite.capture.targets import (
    STANDARD,
    Call,
    Function,
    Target,
    by_name,
    find,
    name_of,
    of_the_first,
    read,
    reason_of,
    watching,
)
from gprojci_suite.capture.watched_call import Errors, WatchedCall, largest_norm

LOGGER = logging.getLogger("gprojci_suite.watch")
AGAIN = 2.0
"""A layer that has been warned of is worth another warning once its error has grown by this factor."""
DRIFTED = "which must not move it: the keys have drifted from zero, and their offset leaks into the gradient"
SATURATED = "so it is not the keys' offset: its rows are saturated, or the kernel is wrong"
REASONS = 3
"""Reasons named, of those for which calls are left out."""
UNSEEN = (
    "no attention call was seen, and nothing will warn of any: name the function that computes it with wrap; calls "
    "without a gradient, as in reentrant checkpointing, are not seen"
)


@dataclass(frozen=True)
class Reading:
    """One attention call of a watched forward pass.

    Attributes:
        step: number of the forward pass in training mode, from 1.
        layer: number of the attention call within it, from 0.
        head: head of the largest error.
        error: relative error of its dq against float64, estimated from some of its rows (`capture.rows`): a fraction.
        response: how far dq of any head moved under a shift that must not move it, over its norm: what of its error the
            keys' offset makes (`capture.response`).
        dk_head: head of k of the largest error of dk; None where dk is not watched.
        dk_error: relative error of its dk against float64, a fraction.
    """

    step: int
    layer: int
    head: int
    error: float
    response: float
    dk_head: int | None = None
    dk_error: float | None = None


def watch(
    model: nn.Module,
    every: int = 500,
    *,
    dk: bool = False,
    warn_at: float = WARN_AT,
    on_warning: Callable[[Reading], None] | None = None,
    wrap: Sequence[str | Target] | None = None,
) -> "Watcher":
    """Warn when the gradient of the queries of a model in training is no longer that of its attention.

    In every `every`-th forward pass in training mode the dq of each attention call is compared with float64 in some
    rows of the first sequence of the batch (`capture.rows`), and the call is repeated after the backward pass with keys
    moved by a vector that must not move dq (`capture.response`). Where error or response of a head exceed `warn_at`,
    the logger `gprojci_suite.watch` warns, once per layer and again when they have doubled; of dk apart from dq. Other
    forward passes run as they are; in a watched one the gradients of a tensor that is used beside attention too may be
    summed in another order. Calls that cannot be repeated (dropout, sliding windows) are left out, and the logger warns
    once that nothing will warn of them, and why; nothing here stops the loop.

    Args:
        model: what the loop calls, compiled or wrapped as it will be.
        every: forward passes between two readings.
        dk: also compare dk with float64. Every row of q has a part in each row of dk, so that this takes all of them:
            products of (seq_q, seq_k) in float64 for every head of the sequence.
        warn_at: error or response, a fraction, above which to warn.
        on_warning: called beside the logger.
        wrap: functions to watch instead of scaled_dot_product_attention and flash_attn_func, as for `capture`.

    Raises:
        ValueError: when an argument cannot be.
    """
    if every < 1 or not 0 < warn_at < float("inf"):
        raise ValueError("every must be at least 1, warn_at a finite number above zero")
    targets = STANDARD if wrap is None else tuple(find(where) for where in wrap)
    return Watcher(model, every, dk, warn_at, on_warning, targets)


class Watcher:
    """What `watch` returns; `close` takes it off the model."""

    def __init__(
        self,
        model: nn.Module,
        every: int,
        dk: bool,
        warn_at: float,
        on_warning: Callable[[Reading], None] | None,
        targets: tuple[Target, ...],
    ) -> None:
        self.readings: list[Reading] = []
        """Of every watched pass and layer so far."""
        self._model, self._every, self._warn_at, self._targets = model, every, warn_at, targets
        self._dk, self._on_warning = dk, on_warning
        self._warned: dict[tuple[str, int], float] = {}
        self._passes = 0
        self._calls: list[WatchedCall] = []
        self._left_out: Counter[str] | None = None
        """Reasons with their calls, of the pass that is being watched; None between two."""
        self._told = False
        """Whether the loop's owner knows that calls are left out."""
        # A module compiled in place is called through this attribute; any other through `forward`.
        in_place = getattr(model, "_compiled_call_impl", None) is not None
        self._attribute = "_compiled_call_impl" if in_place else "forward"
        self._own = vars(model).get(self._attribute)
        self._forward = getattr(model, self._attribute)

        @functools.wraps(self._forward, updated=())
        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._called(*args, **kwargs)

        setattr(model, self._attribute, forward)

    def close(self) -> None:
        """Read the last watched pass, and leave the model as it was."""
        self._read()
        if self._own is None:
            delattr(self._model, self._attribute)
        else:
            setattr(self._model, self._attribute, self._own)

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self._forward(*args, **kwargs)
        self._read()
        if self._model.training and torch.is_grad_enabled():
            self._passes += 1
            if self._passes % self._every == 0:
                self._left_out = Counter()
                try:
                    with watching(self._targets, self._saw):
                        return self._forward(*args, **kwargs)
                except BaseException:
                    self._left_out = None  # A pass that was not finished tells of none.
                    raise
        return self._forward(*args, **kwargs)

    def _saw(
        self, target: Target, original: Function, args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        try:
            self._keep(target, original, args, kwargs, result)
        # A training run is worth more than its alarm.
        except Exception as problem:  # noqa: BLE001
            self._leave_out(f"{target.where.rpartition(':')[2]}: {reason_of(problem)}")

    def _keep(
        self, target: Target, original: Function, args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        o = result[0] if isinstance(result, tuple) else result
        if not isinstance(o, Tensor) or not o.requires_grad:
            return
        given = by_name(target, original, args, kwargs)
        call = read(target, given, masks_allowed=True)
        if not call.q.requires_grad:
            return  # There is no dq to warn of.
        device = call.q.device.type
        lowered, lower = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        autocast = functools.partial(torch.autocast, device, lower, enabled=lowered)
        # Autocast may lower the arguments before they are used: the shift must be exact in that type.
        dtype = lower if lowered else call.q.dtype
        q, k, v = (part[:1].detach().to(dtype, copy=True) for part in (call.q, call.k, call.v))
        attend = _repeated(target, original, given, call, autocast)
        kept = WatchedCall(len(self._calls), attend, call.causal, call.softmax_scale, q, k, v, mask=call.mask)
        tensors = {"do": o, "dq": given[name_of("q", given)]}
        if self._dk and call.k.requires_grad:
            tensors["dk"] = given[name_of("k", given)]
        for name, tensor in tensors.items():
            tensor.register_hook(functools.partial(self._arrived, kept, name, target))
        self._calls.append(kept)

    def _arrived(self, call: WatchedCall, name: str, target: Target, gradient: Tensor) -> None:
        length = (call.k if name == "dk" else call.q).shape[2]
        try:
            setattr(call, name, target.turned(gradient, length)[:1].detach().clone())
        except Exception as problem:  # noqa: BLE001
            LOGGER.debug("no %s of call %d: %s", name, call.layer, problem)

    def _read(self) -> None:
        calls, self._calls = self._calls, []
        found = [each for call in calls if (each := self._errors(call)) is not None]
        largest = {name: largest_norm(found, name) for name in ("dq", "dk")}
        for each in found:
            head, error = each.worst("dq", largest["dq"])
            _, response = each.worst("response", largest["dq"])
            of_dk = each.worst("dk", largest["dk"]) if "dk" in each.heads else (None, None)
            self._note(Reading(self._passes_read, each.layer, head, error, response, *of_dk))
        self._tell_of_what_is_left_out(len(found))

    def _errors(self, call: WatchedCall) -> Errors | None:
        try:
            found = call.errors(self._passes, dk=self._dk)
        # A training run is worth more than its alarm.
        except Exception as problem:  # noqa: BLE001
            self._leave_out(reason_of(problem))
            return None
        if found is None:
            self._leave_out("its gradient has not come")
        return found

    def _leave_out(self, reason: str) -> None:
        LOGGER.debug("not watched: %s", reason)
        if self._left_out is not None:
            self._left_out[reason] += 1

    def _tell_of_what_is_left_out(self, watched: int) -> None:
        """Once: an alarm that is off must not look like one that is silent."""
        left_out, self._left_out = self._left_out, None
        if left_out is None or self._told or (watched and not left_out):
            return
        self._told = True
        if not left_out:
            LOGGER.warning("step %d: %s", self._passes_read, UNSEEN)
            return
        reasons = "; ".join(f"{reason} ({count})" for reason, count in left_out.most_common(REASONS))
        LOGGER.warning(
            "step %d: of %d attention calls %d cannot be watched, and nothing will warn of them: %s",
            *(self._passes_read, watched + left_out.total(), left_out.total(), reasons),
        )

    @property
    def _passes_read(self) -> int:
        return self._passes // self._every * self._every

    def _note(self, reading: Reading) -> None:
        self.readings.append(reading)
        warned = False
        if self._is_news("dq", reading.layer, max(reading.error, reading.response)):
            why = DRIFTED if reading.response > self._warn_at else SATURATED
            LOGGER.warning(
                "step %d: dq of attention call %d, head %d is off by %.0f%%; it moves by %.0f%% when keys are shifted, "
                "%s",
                *(reading.step, reading.layer, reading.head, 100 * reading.error, 100 * reading.response, why),
            )
            warned = True
        if reading.dk_error is not None and self._is_news("dk", reading.layer, reading.dk_error):
            LOGGER.warning(
                "step %d: dk of attention call %d, head %d is off by %.0f%%: the keys, and a bias of theirs, follow it",
                *(reading.step, reading.layer, reading.dk_head, 100 * reading.dk_error),
            )
            warned = True
        if warned and self._on_warning is not None:
            self._on_warning(reading)

    def _is_news(self, gradient: str, layer: int, error: float) -> bool:
        """Whether to warn of an error, which is noted then."""
        if error <= max(self._warn_at, AGAIN * self._warned.get((gradient, layer), 0.0)):
            return False
        self._warned[gradient, layer] = error
        return True


def _repeated(
    target: Target, original: Function, given: Mapping[str, Any], call: Call, autocast: Callable[[], torch.autocast]
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The same call, under the autocast of now, for q, k and v of the first sequence, (1, heads, seq, head_dim)."""
    names = [name_of(part, given) for part in ("q", "k", "v")]
    # Without its tensors, which would be kept alive until the pass is read.
    rest = of_the_first(given, call)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with autocast():
            result = original(**rest, **dict(zip(names, map(target.turned, (q, k, v)), strict=True)))
        o: Tensor = result[0] if isinstance(result, tuple) else result
        return target.turned(o)

    return attend
