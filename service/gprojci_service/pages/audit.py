"""HTTP: the page of the audit log: who asked for which change, with a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from fastapi import APIRouter, Depends, Request, Response

from gprojci_service.access import repository
from gprojci_service.access.service import SessionDep
from gprojci_service.errors import InvalidRequest
from gprojci_service.models import AuditEvent
from gprojci_service.pages.addresses import address
from gprojci_service.pages.endpoints import Before, PageRoute, look_at_visitor, render
from gprojci_service.pages.scatter import pick
from gprojci_service.pages.writers import auditor

PAGE = 50
SORTS = {"newest": "newest first", "oldest": "oldest first"}
_DEFAULT = {"sort": "newest"}
router = APIRouter(route_class=PageRoute)


@dataclass(frozen=True)
class AuditView:
    """What the page of the audit log shows."""

    rows: Sequence[AuditEvent]
    actions: Sequence[str]
    chosen: dict[str, str]
    sorts: dict[str, str]
    onward: str | None
    """Address of the rest of the list."""


@router.get("/audit", dependencies=[Depends(auditor)])
def audit_page(
    request: Request,
    session: SessionDep,
    actor: str = "",
    action: str = "",
    project: str = "",
    since: str = "",
    until: str = "",
    sort: str = "",
    before: Before = None,
    after: Before = None,
) -> Response:
    look_at_visitor(request, session)
    sort = pick(sort, list(SORTS))
    found = repository.audit_events(
        session,
        actor=actor,
        action=action,
        project=project,
        since=_begin(since),
        until=_begin(until, days=1),
        before=before,
        after=after,
        oldest_first=sort == "oldest",
        limit=PAGE + 1,
    )
    chosen = {"actor": actor, "action": action, "project": project, "since": since, "until": until, "sort": sort}
    onward = None
    if len(found) > PAGE:
        key = "after" if sort == "oldest" else "before"
        onward = address("/audit", chosen | {key: str(found[PAGE - 1].id)}, default=_DEFAULT)
    view = AuditView(found[:PAGE], repository.audited_actions(session), chosen, SORTS, onward)
    return render(request, "audit.html", view=view, section="audit")


def _begin(day: str, days: int = 0) -> datetime | None:
    """When a day begins, in UTC; None where none is chosen.

    Raises:
        InvalidRequest: it is no day.
    """
    if not day:
        return None
    try:
        return datetime.combine(date.fromisoformat(day), time(), UTC) + timedelta(days=days)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"{day!r} is not a day; write it as 2026-11-30") from error
