"""The accuracy suite: errors of every slice against float64, vanishing slices, and their summary."""

import math
import statistics
from collections.abc import Mapping

from torch import Tensor

from gprojci_suite import metrics, reference
from gprojci_suite.contract.report import AccuracySummary, Slice
from gprojci_suite.contract.vocabulary import TENSORS, Revision
from gprojci_suite.inputs import InputSet
from gprojci_suite.one_thread import one_thread
from gprojci_suite.reference import AttentionResult

Key = tuple[str, str, str, str]
"""(backend, revision, input, tensor)."""

VANISHING = 1e-4
"""A slice vanishes when its reference norm is below this fraction of the largest one of its tensor and input."""


def references(inputs: InputSet) -> dict[str, AttentionResult]:
    """Float64 results of every layer of an input set."""
    return {
        name: reference.attention(t.q, t.k, t.v, t.do, causal=inputs.causal, softmax_scale=inputs.softmax_scale)
        for name, t in inputs.layers.items()
    }


@one_thread()
def slices(
    backend: str,
    revision: Revision,
    input_name: str,
    results: Mapping[str, Mapping[str, Tensor]],
    expected: Mapping[str, AttentionResult],
) -> list[Slice]:
    """Metrics of every (tensor, layer, batch, head).

    Args:
        backend: name of the backend.
        revision: its revision.
        input_name: name of the input set.
        results: o, dq, dk and dv by layer, shaped like the reference.
        expected: float64 results by layer.
    """
    known = {name: metrics.get(name) for name in metrics.names()}
    found = []
    for tensor in TENSORS:
        norms = {layer: getattr(result, tensor).flatten(2).norm(dim=-1) for layer, result in expected.items()}
        largest = max(float(norm.max()) for norm in norms.values())
        for layer in expected:
            wanted, got = getattr(expected[layer], tensor), results[layer][tensor].double()
            for batch in range(wanted.shape[0]):
                for head in range(wanted.shape[1]):
                    values = {
                        name: metric.compute(got[batch, head], wanted[batch, head], largest)
                        for name, metric in known.items()
                    }
                    values["nonfinite"] = int(values["nonfinite"])
                    found.append(
                        Slice(
                            backend=backend,
                            revision=revision,
                            input=input_name,
                            slice=f"{layer}.b{batch}.h{head}",
                            layer=layer,
                            batch=batch,
                            head=head,
                            tensor=tensor,
                            vanishing=float(norms[layer][batch, head]) < VANISHING * largest,
                            **values,  # type: ignore[arg-type]
                        )
                    )
    return found


def spreads(first: list[Slice], again: list[Slice] | None) -> dict[Key, float]:
    """Run-to-run spread of each median, |again/first − 1|; zero where `again` is None, which is a bitwise repeat."""
    if again is None:
        return dict.fromkeys(_medians(first), 0.0)
    repeated = _medians(again)
    return {key: _distance(median, repeated[key]) for key, median in _medians(first).items()}


def summarise(found: list[Slice], spread: Mapping[Key, float]) -> list[AccuracySummary]:
    """One line per (backend, revision, input, tensor); NaN counts as the largest error there is.

    Args:
        found: all slices.
        spread: run-to-run spread of the medians of whatever ran twice.
    """

    medians = _medians(found)
    result = []
    for key, members in _grouped(found).items():
        counted = [item for item in members if not item.vanishing]
        worst = max(counted, key=_badness, default=None)
        first = members[0]
        result.append(
            AccuracySummary(
                backend=first.backend,
                revision=first.revision,
                input=first.input,
                tensor=first.tensor,
                median=medians[key],
                worst=worst.rel_err if worst else math.nan,
                worst_slice=worst.slice if worst else "",
                slices=len(members),
                vanishing=len(members) - len(counted),
                nonfinite=sum(item.nonfinite for item in members),
                spread=spread.get(key),
            )
        )
    return result


def _grouped(found: list[Slice]) -> dict[Key, list[Slice]]:
    groups: dict[Key, list[Slice]] = {}
    for item in found:
        groups.setdefault((item.backend, item.revision, item.input, item.tensor), []).append(item)
    return groups


def _medians(found: list[Slice]) -> dict[Key, float]:
    counted = {
        key: [_badness(item) for item in members if not item.vanishing] for key, members in _grouped(found).items()
    }
    return {key: statistics.median(errors) if errors else math.nan for key, errors in counted.items()}


def _badness(item: Slice) -> float:
    return math.inf if math.isnan(item.rel_err) else item.rel_err


def _distance(first: float, again: float) -> float:
    if first == again or (math.isnan(first) and math.isnan(again)):
        return 0.0
    return abs(again / first - 1) if first and math.isfinite(first) else math.inf
