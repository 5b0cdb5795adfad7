"""What is wrong with a training, backend by backend: what somebody should be told in the morning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gprojci_service.errors import InvalidRequest
from gprojci_service.pages.formatting import fraction
from gprojci_service.training.summary import BackendSummary
from gprojci_suite.contract.training import reference


def wrong(
    name: str, found: Sequence[BackendSummary], backends: Sequence[str], loss: float, dq_error: float
) -> dict[str, list[str]]:
    """What is wrong with each backend, of its seeds the worst; what cannot be told is wrong too.

    Args:
        name: of the training.
        found: what came of its backends.
        backends: to be checked; all but the reference where empty.
        loss: nats per token, most that a loss may end above the reference's with the same seed.
        dq_error: largest error of dq in the end, in any head, a fraction.

    Raises:
        InvalidRequest: the training has no runs of one of the backends.
    """
    there = {each.backend: each for each in found}
    if unknown := [backend for backend in backends if backend not in there]:
        raise InvalidRequest(f"{name} has no runs of {', '.join(unknown)}; it has {', '.join(there)}")
    against = there.get(reference(there) or "")
    chosen = backends or [backend for backend in there if there[backend] is not against]
    return {backend: list(_of_backend(there[backend], against, loss, dq_error)) for backend in chosen}


def _of_backend(each: BackendSummary, against: BackendSummary | None, loss: float, dq_error: float) -> Iterator[str]:
    for status, count in each.statuses:
        if status != "completed":
            yield f"{count} {status.replace('_', ' ')}"
    if each is not against:
        if alone := sorted({*each.seeds} - {*(against.seeds if against else ())}):
            yield f"no FP32 run stands beside seed {', '.join(map(str, alone))}"
        elif each.loss_difference is None:
            yield "its loss cannot be compared"
        if each.loss_difference is not None and not each.loss_difference.high <= loss:
            yield f"its loss ends {each.loss_difference.high:.4f} above that of FP32, limit {loss:g}"
    if each.final_dq_error is None:
        yield "its dQ was not measured"
    elif not each.final_dq_error.high <= dq_error:
        yield f"dQ error in the end {fraction(each.final_dq_error.high)}, limit {fraction(dq_error)}"
