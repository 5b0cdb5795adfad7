"""Attention by blocks of query rows: what is visible, the scores, and the softmax in base two.

Matrix products take operands that are exact in BF16 (or FP16) and accumulate in FP32, as tensor cores do: the operands
are rounded explicitly and multiplied as float32, where TF32 is exact too. Shapes inside are grouped by key/value head:
queries (batch, kv_heads, group, seq_q, head_dim), keys and values (batch, kv_heads, 1, seq_k, head_dim).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

ROWS = 256
LOG2E = math.log2(math.e)


@dataclass(frozen=True)
class Tile:
    """A block of query rows and the keys that any of them sees.

    Attributes:
        rows: the block of queries.
        keys: the keys from the first to the last visible one.
        hidden: (rows, keys), True where the mask hides a key; None where it hides none.
    """

    rows: slice
    keys: slice
    hidden: Tensor | None


def row_tiles(seq_q: int, seq_k: int, causal: bool, device: torch.device) -> Iterator[Tile]:
    """Blocks of at most ROWS queries, causal masks aligned to the bottom right; rows that see no key are left out."""
    for start in range(0, seq_q, ROWS):
        stop = min(start + ROWS, seq_q)
        visible = min(seq_k, max(0, stop + seq_k - seq_q)) if causal else seq_k
        if visible == 0:
            continue
        hidden = None
        if causal:
            last = torch.arange(start, stop, device=device) + (seq_k - seq_q)
            hidden = torch.arange(visible, device=device) > last[:, None]
        yield Tile(slice(start, stop), slice(0, visible), hidden)


def group_heads(q: Tensor, kv_heads: int) -> Tensor:
    """Float32 (batch, kv_heads, group, seq, head_dim) of a (batch, heads, seq, head_dim) tensor."""
    batch, heads, seq, head_dim = q.shape
    return q.float().reshape(batch, kv_heads, heads // kv_heads, seq, head_dim)


def masked_scores(q_rows: Tensor, k_seen: Tensor, hidden: Tensor | None) -> Tensor:
    """Unscaled Q·Kᵀ of one tile in FP32, −inf where hidden."""
    scores = q_rows @ k_seen.mT
    return scores if hidden is None else scores.masked_fill(hidden, -math.inf)


def exponentials(scores: Tensor, scale: float, subtrahend: Tensor) -> Tensor:
    """exp2(scores·scale·log2e − subtrahend), the product rounded before the subtraction.

    This is the known repair of the fused multiply-add: with `subtrahend` the row's own rounded maximum, the winning
    probability is exactly one.
    """
    return torch.exp2(scores * (scale * LOG2E) - subtrahend)


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Float32 values that `dtype` represents exactly: `x` rounded to nearest even."""
    return x.to(dtype).float()


def nonzero(x: Tensor) -> Tensor:
    """`x` with zeros replaced by one, to divide rows that see nothing."""
    return torch.where(x == 0, 1.0, x)
