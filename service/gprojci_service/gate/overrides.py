"""Decisions about overrides: a broken limit is accepted for one commit, by name and with a reason, or is not."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gprojci_service.errors import Conflict, InvalidRequest
from gprojci_service.gate import accepted, repository, service
from gprojci_service.models import Override, Project, Verdict
from gprojci_service.settings import Settings


class NothingToAccept(Conflict):
    """The commit has no verdict yet, or this limit is not broken."""

    field = "finding"


class NotAcceptable(Conflict):
    """NaN, Inf or a backend without a result: nothing that a person could weigh."""

    field = "finding"


class AcceptedAlready(Conflict):
    """Somebody has accepted this limit for this commit."""

    field = "finding"


class OverrideReasonMissing(InvalidRequest):
    """Accepting a broken limit needs a reason."""

    field = "reason"


def accept(
    session: Session,
    settings: Settings,
    project: Project,
    *,
    head_sha: str,
    limit_key: str,
    backend: str,
    author: str,
    reason: str,
    source: Literal["comment", "api", "page"],
    source_url: str | None = None,
) -> Override:
    """Keeps the acceptance for ever, decides the commit's jobs anew from their reports and has GitHub told.

    Raises:
        OverrideReasonMissing: the reason is empty.
        NothingToAccept: the commit has no verdict, or no finding of that key and backend fails.
        NotAcceptable: what fails cannot be accepted.
        AcceptedAlready: it was accepted before.
    """
    reason = " ".join(reason.split())
    if not reason:
        raise OverrideReasonMissing("say why it is accepted: the reason stands on the check for everybody to read")
    verdicts = repository.of_head(session, project.id, head_sha)
    known = repository.override_of(session, project.id, head_sha, limit_key, backend)
    if known is not None:
        raise _already(known)
    _must_fail(verdicts, head_sha, limit_key, backend)
    override = Override(
        project_id=project.id,
        head_sha=head_sha,
        limit_key=limit_key,
        backend=backend,
        author=author,
        reason=reason[:500],
        source=source,
        source_url=source_url,
    )
    try:
        with session.begin_nested():
            session.add(override)
    except IntegrityError:  # accepted by somebody else between the look and the insert
        raise AcceptedAlready(f"{limit_key} was accepted for commit {head_sha[:10]} this very moment") from None
    for verdict in verdicts:
        service.decide_anew(session, settings, verdict.job_id, f"accepted-{override.id}")
    return override


def _already(known: Override) -> AcceptedAlready:
    return AcceptedAlready(
        f"{known.limit_key} was accepted for commit {known.head_sha[:10]} by {known.author}: {known.reason}"
    )


def _must_fail(verdicts: list[Verdict], head_sha: str, limit_key: str, backend: str) -> None:
    if not verdicts:
        raise NothingToAccept(
            f"commit {head_sha[:10]} has no verdict yet; accept a limit once you see by how much it is broken"
        )
    failing = [row for verdict in verdicts for row in verdict.evidence if row["verdict"] == "fail"]
    fitting = [row for row in failing if row["limit_key"] == limit_key and backend in ("", row["backend"])]
    if limit_key in accepted.NEVER and fitting:
        raise NotAcceptable(f"{fitting[0]['message']}: this cannot be accepted, it has to be mended")
    if not any(_decides(row) for row in fitting):
        open_keys = sorted({f"{row['backend']}/{row['limit_key']}" for row in failing if _decides(row)})
        what = f"{backend}/{limit_key}" if backend else limit_key
        raise NothingToAccept(
            f"{what} does not block commit {head_sha[:10]}; "
            f"what does and can be accepted: {', '.join(open_keys) or 'nothing'}"
        )


def _decides(row: dict[str, Any]) -> bool:
    return bool(row["required"]) and row["verdict"] == "fail" and row["limit_key"] not in accepted.NEVER
