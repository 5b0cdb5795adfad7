"""Decisions about imported reports: which are taken, and that the same one is kept once."""

from __future__ import annotations

import hashlib
import json

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gprojci_service.errors import Conflict, InvalidRequest, ReportNotFound
from gprojci_service.models import ImportedReport
from gprojci_service.reports import repository
from gprojci_service.results import excerpts
from gprojci_service.results.excerpts import Cut
from gprojci_suite.contract import ContractError, codec
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.training import is_training


class ImportedReportInvalid(InvalidRequest):
    """The file is not a report of the suite; the message names the field."""


class ImportedReportUnreadable(Conflict):
    """A stored report is of a format that this version does not read."""


def take(session: Session, title: str, text: str) -> tuple[ImportedReport, bool]:
    """Stores a report and says whether it is new; the same report again keeps its number and gets the new title.

    Raises:
        ImportedReportInvalid: it breaks the contract.
    """
    try:
        report = Report.loads(text)
    except ContractError as error:
        if error.path == "$.kind" and is_training(codec.loads(text)):
            raise ImportedReportInvalid("this is a training report: `gprojci training send FILE` takes it") from error
        raise ImportedReportInvalid(f"not a report of gprojci-suite: {error}") from error
    body = report.to_json()
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    content_hash = f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"
    known = repository.by_hash(session, content_hash)
    if known is None:
        made = ImportedReport(
            content_hash=content_hash,
            title=title,
            schema_version=report.schema_version,
            body=body,
            hardware=report.environment.hardware,
        )
        try:
            with session.begin_nested():
                session.add(made)
            return made, True
        except IntegrityError:  # another request imported the same one meanwhile
            known = repository.by_hash(session, content_hash)
            if known is None:
                raise
    known.title = title
    return known, False


def get(session: Session, report_id: int, *, whole: bool = True) -> ImportedReport:
    """The imported report of that number, with its body where `whole`.

    Raises:
        ReportNotFound: there is none.
    """
    found = repository.by_id(session, report_id, whole=whole)
    if found is None:
        raise ReportNotFound(f"no imported report {report_id}; `gprojci report list` shows them")
    return found


def read_part(session: Session, row: ImportedReport, cut: Cut) -> Report:
    """The suite's report in a stored row, with those entries of its long lists that `cut` keeps.

    Raises:
        ImportedReportUnreadable: an earlier version of the service stored it in a format that this one does not read.
    """
    try:
        return Report.from_json(excerpts.excerpt(session, ImportedReport, row.id, cut))
    except ContractError as error:
        raise ImportedReportUnreadable(
            f"imported report {row.id} has a format that this version does not read ({error}); "
            f"it is kept whole at /api/v1/reports/{row.id}"
        ) from error


def remove(session: Session, report_id: int) -> None:
    """Removes an imported report; nothing else stands on it.

    Raises:
        ReportNotFound: there is none.
    """
    session.delete(get(session, report_id))
