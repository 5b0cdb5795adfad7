"""What is measured of one step: errors of dq and dk against float64, and the state of the keys, layer by layer."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gprojci_suite import metrics, reference
from gprojci_suite.accuracy import VANISHING
from gprojci_suite.capture.watched_call import Errors, WatchedCall, largest_norm
from gprojci_suite.masks import bottom_right
from gprojci_suite.reference import AttentionResult
from gprojci_suite.training.model import Block

Columns = dict[str, float]
"""Values of one layer by the name of its column in `contract.training.LayerSeries`."""
WATCHED = ("dq", "response")
"""Of what `capture.watch` reads, what it warns by where dk is not watched."""


@dataclass(frozen=True)
class Measured:
    """One step.

    Attributes:
        columns: by layer.
        worst: layer and head of the largest error of dq, and that error; None when all vanish.
        seen: by layer, what the errors are of.
        alarm: largest error or response that `capture.watch` would have read.
    """

    columns: Mapping[int, Columns]
    worst: tuple[int, int, float] | None
    seen: Mapping[int, WatchedCall]
    alarm: float


def measure(seen: Mapping[int, WatchedCall], blocks: torch.nn.ModuleList, step: int) -> Measured:
    """Measure the step with these calls, by layer, while the gradients of the blocks are still there."""
    columns: dict[int, Columns] = {}
    expected = {layer: _reference(record) for layer, record in seen.items()}
    watched = {layer: _watched(record, step) for layer, record in seen.items()}
    longest_watched = largest_norm(watched.values(), "dq")
    largest = {
        name: max(float(getattr(result, name).flatten(2).norm(dim=-1).max()) for result in expected.values())
        for name in ("dq", "dk")
    }
    worst: tuple[int, int, float] | None = None
    for layer, record in seen.items():
        block = blocks[layer]
        assert isinstance(block, Block)
        wanted = expected[layer]
        dq = _errors(record.dq, wanted.dq, largest["dq"])
        dk = _errors(record.dk, wanted.dk, largest["dk"])
        head = max(range(len(dq)), key=lambda h: -math.inf if math.isnan(dq[h]) else dq[h])
        if not math.isnan(dq[head]) and (worst is None or dq[head] > worst[2]):
            worst = layer, head, dq[head]
        columns[layer] = {
            **_gradient_norms(block),
            **_keys(record),
            **_both("dq_error", dq),
            "dq_worst_head": -1 if math.isnan(dq[head]) else head,
            **_both("dk_error", dk),
            "row_sum_leak": _largest(_leak(record, wanted, largest["dq"])),
            "symmetry_response": _largest(watched[layer].counted("response", longest_watched).tolist()),
        }
    alarm = max((each.worst(name, longest_watched)[1] for each in watched.values() for name in WATCHED), default=0.0)
    return Measured(columns, worst, seen, alarm)


def largest_logits(record: WatchedCall) -> Tensor:
    """Largest absolute visible logit of each head, (heads,)."""
    return _logits(record)[1]


def _reference(record: WatchedCall) -> AttentionResult:
    assert record.do is not None
    scale = record.softmax_scale
    return reference.attention(record.q, record.k, record.v, record.do, causal=True, softmax_scale=scale)


def _watched(record: WatchedCall, step: int) -> Errors:
    """What `capture.watch` reads."""
    errors = record.errors(step, dk=False)
    assert errors is not None
    return errors


def _errors(result: Tensor | None, wanted: Tensor, largest: float) -> list[float]:
    """Relative error of every head, NaN where it vanishes; infinite where the result is not finite."""
    assert result is not None
    compute = metrics.get("rel_err").compute
    found = []
    for head in range(wanted.shape[1]):
        vanishes = float(wanted[0, head].norm()) <= VANISHING * largest
        error = compute(result[0, head].double(), wanted[0, head], largest)
        found.append(math.nan if vanishes else math.inf if math.isnan(error) else error)
    return found


def _leak(record: WatchedCall, wanted: AttentionResult, largest: float) -> list[float]:
    assert record.dq is not None
    mean = record.k.double().mean(2, keepdim=True)
    direction = mean / mean.norm(dim=-1, keepdim=True).clamp(min=1e-300)
    along = ((record.dq.double() - wanted.dq) * direction).sum(-1).norm(dim=-1)[0]
    norm = wanted.dq.flatten(2).norm(dim=-1)[0]
    return torch.where(norm > VANISHING * largest, along / norm, math.nan).tolist()


def _keys(record: WatchedCall) -> Columns:
    keys = record.k[0].float()
    mean = keys.mean(1, keepdim=True)
    spread = (keys - mean).square().sum(-1).mean(1).sqrt()
    offsets = (mean[:, 0].norm(dim=-1) / spread).tolist()
    top, largest = _logits(record)
    return {
        **_both("key_offset", offsets),
        "largest_logit": float(largest.max()),
        "top_probability": float(top.median()),
    }


def _logits(record: WatchedCall) -> tuple[Tensor, Tensor]:
    """Largest probability of every row (heads, sequence), and largest absolute visible logit of each head (heads,)."""
    logits = record.q[0].float() @ record.k[0].float().mT * record.softmax_scale
    hidden = ~bottom_right(logits.shape[1], logits.shape[2], logits.device)
    largest = logits.masked_fill(hidden, 0.0).abs().amax((1, 2))
    return logits.masked_fill(hidden, -math.inf).softmax(-1).amax(-1), largest


def _gradient_norms(block: Block) -> Columns:
    result = {"gradient_norm": _norm(block)}
    return result | {f"gradient_norm_{name}": _norm(getattr(block, name)) for name in ("q", "k", "v")}


def _norm(module: torch.nn.Module) -> float:
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))


def _both(name: str, values: list[float]) -> Columns:
    counted = [value for value in values if not math.isnan(value)]
    return {
        f"{name}_median": statistics.median(counted) if counted else math.nan,
        f"{name}_worst": max(counted, default=math.nan),
    }


def _largest(values: list[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)
