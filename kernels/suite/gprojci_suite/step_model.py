"""The models of the step suite: a transformer trained on one fixed batch, its attention the backend's.

Pre-norm blocks of attention and a GELU feed-forward layer four times as wide, learned positions, untied output layer,
cross-entropy. Weights and AdamW (fused on CUDA) in float32, products in bfloat16 by autocast, no dropout. Runs in the
backend's own process; needs torch alone.

A name that ends in `.compiled` is the same model with everything but attention and the optimiser under torch.compile.
One rule for every backend: what comes before attention in a block, what comes after it, and the loss are compiled as
whole graphs, and the backend is called between them as it is, an opaque function whose insides the compiler never sees,
even where the backend would let it. On CUDA the compiler is Inductor, which needs a C compiler for Triton's launchers;
on a CPU it is `aot_eager` (traced, not generated), since a bare machine has no C++ compiler: its times say nothing of
Inductor's.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

CLOCK = time.perf_counter
LEARNING_RATE = 3e-4


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a model and of its batch."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    sequence: int

    @property
    def head_dim(self) -> int:
        """Elements per head."""
        return self.width // self.heads

    def attention_case(self) -> dict[str, Any]:
        """What attention computes in it, as the fields of `peers.Case`."""
        heads = {"heads": self.heads, "kv_heads": self.heads, "head_dim": self.head_dim}
        sequence = {"seq_q": self.sequence, "seq_k": self.sequence}
        return {"batch": self.batch, **heads, **sequence, "causal": True, "dtype": "bfloat16"}


MODELS = {
    "450m": ModelShape(layers=28, width=1024, heads=16, vocabulary=32768, batch=8, sequence=2048),
    "450m-d128": ModelShape(layers=28, width=1024, heads=8, vocabulary=32768, batch=4, sequence=4096),
    "tiny": ModelShape(layers=2, width=64, heads=2, vocabulary=256, batch=2, sequence=64),
}
"""By name. The two large ones have 422 and 424 million parameters, all but 419 million of them positions."""

COMPILED = ".compiled"
COMPILERS = {"cpu": "aot_eager", "cuda": "inductor"}

Attention = Callable[..., Tensor]
"""q, k and v shaped (batch, heads, seq, head_dim), views into one projection; keywords causal and softmax_scale."""


class NoAttention(torch.autograd.Function):
    """Stands for attention when a step is timed without it: no kernel runs, a ready o goes out and do comes back."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> Tensor:
        """A view of o, which has the shape of q."""
        return o.detach()

    @staticmethod
    def backward(ctx: Any, *do: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """do in place of dq, dk and dv."""
        return do[0], do[0], do[0], None


class WrongAttention(ValueError):
    """The backend's result is no tensor of q's shape; the message says what it is."""


def checked(o: object, q: Tensor) -> Tensor:
    """What a backend returned for q; raises WrongAttention."""
    if not isinstance(o, Tensor):
        raise WrongAttention(f"returned {type(o).__name__} where a tensor is expected")
    if o.shape != q.shape:
        raise WrongAttention(f"o is {tuple(o.shape)} where {tuple(q.shape)} is expected")
    return o


def shape_of(name: str) -> ModelShape:
    """Sizes of a model by its name, compiled or not."""
    return MODELS[name.removesuffix(COMPILED)]


def before_attention(x: Tensor, norm: Tensor, qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, views into one projection shaped (batch, heads, seq, head_dim), of x (batch, seq, width)."""
    batch, sequence, width = x.shape
    projected = nn.functional.linear(nn.functional.layer_norm(x, (width,), norm), qkv)
    q, k, v = projected.view(batch, sequence, 3, heads, width // heads).unbind(2)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def after_attention(x: Tensor, o: Tensor, out: Tensor, norm: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The block's result (batch, seq, width): x with what attention and the feed-forward layer add to it."""
    x = x + nn.functional.linear(o.transpose(1, 2).reshape(x.shape), out)
    hidden = nn.functional.gelu(nn.functional.linear(nn.functional.layer_norm(x, x.shape[-1:], norm), up))
    return x + nn.functional.linear(hidden, down)


def loss_of(x: Tensor, norm: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of targets (batch, seq) under the logits of x (batch, seq, width)."""
    logits = nn.functional.linear(nn.functional.layer_norm(x, x.shape[-1:], norm), head)
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@dataclass(frozen=True)
class Parts:
    """What is computed around attention; functions of tensors alone, so that all blocks share one compiled graph."""

    before: Callable[..., tuple[Tensor, Tensor, Tensor]] = before_attention
    after: Callable[..., Tensor] = after_attention
    loss: Callable[..., Tensor] = loss_of

    def compiled(self, device: str) -> "Parts":
        """They under torch.compile; a part that is not one whole graph is an error."""
        compiler = torch.compile(backend=COMPILERS[device], fullgraph=True, dynamic=False)
        return Parts(compiler(self.before), compiler(self.after), compiler(self.loss))


@functools.cache
def compiled_parts(device: str) -> Parts:
    """Those of these models compiled, once per process."""
    return Parts().compiled(device)


class Block(nn.Module):
    """The weights of one layer."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.attention_norm = nn.LayerNorm(shape.width, bias=False)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.feed_norm = nn.LayerNorm(shape.width, bias=False)
        self.up = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.down = nn.Linear(4 * shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, attention: Attention, parts: Parts) -> Tensor:
        """x and the result are (batch, seq, width)."""
        q, k, v = parts.before(x, self.attention_norm.weight, self.qkv.weight, self.shape.heads)
        o = attention(q, k, v, causal=True, softmax_scale=self.shape.head_dim**-0.5)
        feed = (self.feed_norm.weight, self.up.weight, self.down.weight)
        return parts.after(x, o, self.out.weight, *feed)


class Transformer(nn.Module):
    """The model; tokens and targets (batch, seq) to the loss."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.sequence, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, bias=False)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor, attention: Attention, parts: Parts) -> Tensor:
        """Cross-entropy of the next token, a scalar."""
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x, attention, parts)
        return parts.loss(x, self.norm.weight, self.head.weight, targets)


class TrainingStep:
    """A model, its optimiser and its batch; each call trains one step.

    Args:
        name: of MODELS, or one of them with the suffix COMPILED.
        attention: the backend's callable.
        input_dtype: what q, k and v are cast to before the call, as for the peers that name one; None to leave them.
        device: cpu or cuda.
        seed: of weights and batch.
    """

    def __init__(
        self, name: str, attention: Attention, input_dtype: torch.dtype | None, device: str, seed: int
    ) -> None:
        shape = shape_of(name)
        self.parts = compiled_parts(device) if name.endswith(COMPILED) else Parts()
        self.device = device
        self.attention = attention
        self.input_dtype = input_dtype
        self.stand_in: Tensor | None = None
        generator = torch.Generator().manual_seed(seed)
        batch = torch.randint(shape.vocabulary, (shape.batch, shape.sequence + 1), generator=generator)
        self.tokens, self.targets = batch[:, :-1].to(device), batch[:, 1:].to(device)
        torch.manual_seed(seed)
        with torch.device(device):
            self.model = Transformer(shape)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, fused=device == "cuda")

    def __call__(self, *, skip_attention: bool = False) -> tuple[float, float]:
        """Seconds and loss of one step; raises WrongAttention."""
        attention = self._no_attention if skip_attention else self._attention
        self._synchronise()
        begin = CLOCK()
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.model(self.tokens, self.targets, attention, self.parts)
        torch.autograd.backward(loss)
        self.optimiser.step()
        self._synchronise()
        return CLOCK() - begin, loss.item()

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
        # The backend computes in the types it is given, not in those autocast would choose.
        with torch.autocast(self.device, enabled=False):
            given = (part if self.input_dtype is None else part.to(self.input_dtype) for part in (q, k, v))
            o = self.attention(*given, causal=causal, softmax_scale=softmax_scale)
        return checked(o, q).to(q.dtype)

    def _no_attention(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
        if self.stand_in is None:
            batch, heads, sequence, head_dim = q.shape
            # Heads after the sequence, so that the output projection needs no copy, as with most kernels.
            self.stand_in = torch.randn(batch, sequence, heads, head_dim, device=q.device, dtype=q.dtype)
        o: Tensor = NoAttention.apply(q, k, v, self.stand_in.transpose(1, 2))  # type: ignore[no-untyped-call]
        return o

    def _synchronise(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
