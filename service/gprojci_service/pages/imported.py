"""Assembles the pages of reports that were measured elsewhere and imported."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy.orm import Session

from gprojci_service.models import ImportedReport
from gprojci_service.pages import report_choices, report_page
from gprojci_service.pages.schemas import ImportedListView, ImportedView
from gprojci_service.reports import repository
from gprojci_service.reports import service as imported
from gprojci_service.results import excerpts

SHOWN = 200


def reports(session: Session) -> ImportedListView:
    """The newest of them."""
    return ImportedListView(tuple(repository.newest(session, SHOWN)))


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
