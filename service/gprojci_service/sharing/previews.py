"""Decides what the link preview of a page says: its verdict or state, what it is about, and why."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from gprojci_service.errors import NotFound
from gprojci_service.pages import bisections, findings, regressions
from gprojci_service.pages.formatting import clean, first_line, short_sha
from gprojci_service.pages.job import job_row
from gprojci_service.sharing.card import Card

_VERDICTS = {"pass": "passes", "fail": "fails", "neutral": "cannot tell", "error": "error"}
_REGRESSION_TONES = {"fixed": "pass", "acknowledged": "neutral", "ignored": ""}
_BISECTION_TONES = {"found": "pass", "not_worse": "neutral", "failed": "error"}


class PreviewNotFound(NotFound):
    """Pages of that kind have no preview."""


def card(session: Session, kind: str, number: int) -> Card:
    """The preview of `/<kind>/<number>`.

    Raises:
        PreviewNotFound: pages of that kind have none.
        JobNotFound, RegressionNotFound, BisectionNotFound: there is no such page.
    """
    if kind not in _CARDS:
        raise PreviewNotFound(f"there are previews of {', '.join(sorted(_CARDS))}")
    return _CARDS[kind](session, number)


def _job(session: Session, number: int) -> Card:
    row = job_row(session, number)
    reasons = tuple(clean(reason.sentence) for reason in findings.reasons(row.verdict, at_most=2))
    told = (clean(row.verdict.summary),) if row.verdict else (clean(row.job.detail),) if row.job.detail else ()
    author = clean(row.commit.author_name) if row.commit else ""
    return Card(
        row.verdict.verdict if row.verdict else "",
        f"the gate {_VERDICTS[row.verdict.verdict]}" if row.verdict else row.job.state.replace("_", " "),
        row.about,
        reasons or told,
        " · ".join(filter(None, (row.project.name, short_sha(row.job.head_sha), author, row.job.hardware))),
    )


def _regression(session: Session, number: int) -> Card:
    view = regressions.regression(session, number, {}, drawn=False)
    first = f"First bad commit {short_sha(view.first_bad.sha)} {first_line(view.first_bad.message)}"
    shown = tuple(f"{one.name} on {one.where}: {one.before} → {one.after} ({one.amount})" for one in view.series[:2])
    state = view.regression.state
    return Card(
        _REGRESSION_TONES.get(state, "fail"),
        f"regression: {state}",
        clean(view.title),
        (first.strip(), *map(clean, shown)),
        f"{view.project.name} · owner: {clean(view.regression.owner) or 'nobody'}",
    )


def _bisection(session: Session, number: int) -> Card:
    view = bisections.bisection(session, number)
    state = view.bisection.state
    found = f"First bad commit: {short_sha(view.first_bad)}" if view.first_bad else clean(view.bisection.detail)
    message = first_line(view.first_bad_commit.message) if view.first_bad_commit else ""
    return Card(
        _BISECTION_TONES.get(state, ""),
        f"bisection: {state.replace('_', ' ')}",
        view.title,
        (f"{found} {message}".strip() or f"{view.remaining_count} of {view.searched} commits remain",),
        f"{view.project.name} · {view.bisection.hardware}",
    )


_CARDS: dict[str, Callable[[Session, int], Card]] = {
    "jobs": _job,
    "regressions": _regression,
    "bisections": _bisection,
}
