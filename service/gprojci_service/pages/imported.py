"""Assembles the pages of reports that were measured elsewhere and imported."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy.orm import Session

from gprojci_service.models import ImportedReport
from gprojci_service.pages import report_choices, report_page
from gprojci_service.pages.addresses import address
from gprojci_service.pages.scatter import pick
from gprojci_service.pages.schemas import ImportedListView, ImportedView
from gprojci_service.reports import repository
from gprojci_service.reports import service as imported
from gprojci_service.results import excerpts

PAGE = 50
SORTS = {"newest": "newest first", "title": "by title"}
_DEFAULT = {"sort": "newest"}


def reports(session: Session, choices: Mapping[str, str], page: int) -> ImportedListView:
    """The list, by what the address chooses: hardware, q (words of the title) and sort."""
    classes = ["", *repository.hardware(session)]
    hardware, sort = pick(choices.get("hardware"), classes), pick(choices.get("sort"), list(SORTS))
    text = choices.get("q", "").strip()[:100]
    found = repository.search(
        session, text, hardware, by_title=sort == "title", offset=(page - 1) * PAGE, limit=PAGE + 1
    )
    chosen = {"hardware": hardware, "q": text, "sort": sort}
    return ImportedListView(
        rows=tuple(found[:PAGE]),
        known=len(classes) > 1,
        hardware=hardware,
        hardwares={"": "all classes"} | {name: name for name in classes if name},
        text=text,
        sort=sort,
        sorts=SORTS,
        newer=address("/reports", chosen, page - 1, default=_DEFAULT) if page > 1 else None,
        older=address("/reports", chosen, page + 1, default=_DEFAULT) if len(found) > PAGE else None,
    )


def report(session: Session, report_id: int, choices: Mapping[str, str]) -> ImportedView:
    """One of them, with `choices` from the address.

    Raises:
        ReportNotFound: there is none of that number.
        ImportedReportUnreadable: this version does not read its format.
    """
    row = imported.get(session, report_id, whole=False)
    shown = report_choices.shown(excerpts.outline(session, ImportedReport, row.id), (), choices)
    found = imported.read_part(session, row, shown.cut())
    view = report_page.view(found, shown, None, choices, None)
    return ImportedView(row, datetime.fromisoformat(found.created_at), view)
