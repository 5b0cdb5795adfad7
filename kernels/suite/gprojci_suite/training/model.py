"""The transformer that is trained, with the switches of `contract.training.TrainingModel`.

Pre-norm blocks as in `step_model`, but with separate projections to q, k and v, so that each is a matrix of its own to
Muon and has a gradient of its own. Weights are float32, products bfloat16 by autocast; attention gets bfloat16.
Compiled, everything but attention is: the backend stands between whole graphs as in `step_model`.
"""

import functools
import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gprojci_suite.contract.training import TrainingModel
from gprojci_suite.step_model import Parts
from gprojci_suite.training.data import VOCABULARY

INITIAL_STD = 0.02
ROTARY_BASE = 10_000.0

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Layer, and q, k, v (batch, heads, sequence, head_dim), to o of the same shape."""


def before_attention(
    x: Tensor,
    norm: Tensor,
    weights: tuple[Tensor, Tensor, Tensor],
    biases: tuple[Tensor | None, Tensor | None, Tensor | None],
    gains: tuple[Tensor, Tensor] | None,
    rotation: tuple[Tensor, Tensor] | None,
    heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v (batch, heads, sequence, head_dim) of x (batch, sequence, width).

    Args:
        x: residual stream.
        norm: gain of the LayerNorm before.
        weights: of q, k and v, (width, width) each.
        biases: of q, k and v, (width,) each where there is one.
        gains: of RMSNorm on q and k, (head_dim,) each.
        rotation: cosine and sine of rotary positions, (sequence, head_dim / 2) each.
        heads: heads.
    """
    batch, sequence, width = x.shape
    normed = nn.functional.layer_norm(x, (width,), norm)
    q, k, v = (
        nn.functional.linear(normed, weight, bias).view(batch, sequence, heads, width // heads).transpose(1, 2)
        for weight, bias in zip(weights, biases, strict=True)
    )
    if gains is not None:
        q, k = (
            nn.functional.rms_norm(part.float(), part.shape[-1:], gain)
            for part, gain in zip((q, k), gains, strict=True)
        )
    if rotation is not None:
        q, k = (rotated(part, *rotation) for part in (q, k))
    return q.to(v.dtype), k.to(v.dtype), v


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021), halves paired, in float32."""
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def loss_of(x: Tensor, norm: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy, in float32, of those targets (batch, sequence) that count."""
    logits = nn.functional.linear(nn.functional.layer_norm(x, x.shape[-1:], norm), head)
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


@functools.cache
def parts(device: str, compiled: bool) -> Parts:
    """The functions around attention, under torch.compile where asked for, once per process."""
    plain = Parts(before=before_attention, loss=loss_of)
    return plain.compiled(device) if compiled else plain


class Block(nn.Module):
    """The weights of one layer."""

    def __init__(self, shape: TrainingModel) -> None:
        super().__init__()
        self.heads = shape.heads
        width, head_dim = shape.width, shape.width // shape.heads
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.q = nn.Linear(width, width, bias="q" in shape.biases)
        self.k = nn.Linear(width, width, bias="k" in shape.biases)
        self.v = nn.Linear(width, width, bias="v" in shape.biases)
        self.gains = nn.ParameterList(torch.ones(head_dim) for _ in range(2 if shape.qk_norm else 0))
        self.out = nn.Linear(width, width, bias=False)
        self.feed_norm = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, attend: Callable[..., Tensor], part: Parts, rotation: tuple[Tensor, ...]) -> Tensor:
        """x and the result are (batch, sequence, width)."""
        projections = (self.q, self.k, self.v)
        q, k, v = part.before(
            x,
            self.attention_norm.weight,
            tuple(p.weight for p in projections),
            tuple(p.bias for p in projections),
            tuple(self.gains) or None,
            rotation or None,
            self.heads,
        )
        feed = (self.feed_norm.weight, self.up.weight, self.down.weight)
        return part.after(x, attend(q, k, v), self.out.weight, *feed)


class Transformer(nn.Module):
    """The model; its weights depend on the seed alone, not on the device."""

    def __init__(self, shape: TrainingModel, seed: int = 0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, shape.width)
        learned = shape.positions == "learned"
        self.positions = nn.Embedding(shape.sequence, shape.width) if learned else None
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, bias=False)
        self.head = nn.Linear(shape.width, VOCABULARY, bias=False)
        draw = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and not parameter.is_meta:
                nn.init.normal_(parameter, std=INITIAL_STD, generator=draw)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if shape.key_bias_std:
            # Draws of its own: all other weights are those of the same seed without it.
            draw = torch.Generator().manual_seed(seed)
            for block in self.blocks:
                assert isinstance(block, Block)
                if not block.k.bias.is_meta:
                    nn.init.normal_(block.k.bias, std=shape.key_bias_std, generator=draw)
        angles = torch.outer(torch.arange(shape.sequence), ROTARY_BASE ** -_fractions(shape.width // shape.heads))
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor, attend: Attend, part: Parts) -> Tensor:
        """Mean loss, a scalar, of tokens and targets (batch, sequence)."""
        x = self.tokens(tokens)
        rotation: tuple[Tensor, ...] = (self.cosine, self.sine)  # type: ignore[assignment]
        if self.positions is not None:
            x, rotation = x + self.positions.weight, ()
        for number, block in enumerate(self.blocks):
            x = block(x, functools.partial(attend, number), part, rotation)
        return part.loss(x, self.norm.weight, self.head.weight, targets)

    def weights_hash(self) -> str:
        """`sha256:` of all weights by name, in order."""
        digest = hashlib.sha256()
        for name, parameter in sorted(self.named_parameters()):
            digest.update(name.encode() + b"\n" + parameter.detach().cpu().contiguous().numpy().tobytes())
        return f"sha256:{digest.hexdigest()}"


def parameter_count(shape: TrainingModel) -> int:
    """Trained parameters of a model, without making one."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(shape).parameters())


def _fractions(head_dim: int) -> Tensor:
    return torch.arange(0, head_dim, 2) / head_dim
