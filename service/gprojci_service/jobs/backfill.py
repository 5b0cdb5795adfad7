"""Decisions about backfills: which commits of the past are measured, and against what."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from gprojci_service.errors import InvalidRequest
from gprojci_service.jobs import repository, service
from gprojci_service.jobs.schemas import Backfill
from gprojci_service.projects import service as projects
from gprojci_service.settings import Settings


@dataclass(frozen=True)
class Backfilled:
    """What a backfill asked for."""

    selected: list[str]
    """Full SHAs, oldest first."""
    created: list[int]
    """Numbers of the new jobs."""
    measured: list[str]
    """Selected commits that have a result, or an open job, on every class."""


def backfill(session: Session, settings: Settings, body: Backfill) -> Backfilled:
    """Makes jobs for every Nth commit of a range, counted back from its newest; those that are measured are left out.

    Each is measured against the selected commit before it, so that every build serves two jobs and a step between two
    points of the history was measured in one session; the first against its own first parent. The jobs are claimed
    after all others. Measured is what has a result under the ruler of its class's newest result: a new ruler begins
    new series, and a backfill then fills those.

    Raises:
        ProjectNotFound, ProjectArchived: of the project.
        InvalidRequest: a commit is listed twice.
    """
    project = projects.get(session, body.project)
    if len(set(body.commits)) != len(body.commits):
        raise InvalidRequest("commits: a commit is listed twice; send git rev-list --first-parent --reverse OLD..NEW")
    selected = body.commits[:: -body.every][::-1]
    created: list[int] = []
    untouched = set(selected)
    for hardware in project.hardware or settings.default_hardware:
        ruler = repository.newest_ruler(session, hardware)
        there = repository.heads_measured(session, project.id, hardware, ruler, selected)
        for base, head in zip([None, *selected], selected, strict=False):
            if head in there:
                continue
            untouched.discard(head)
            created += service.create(
                session,
                settings,
                project,
                kind="backfill",
                head_sha=head,
                base_sha=base,
                ref=project.default_branch,
                hardware=[hardware],
                occasion=ruler or "first",
            )
    return Backfilled(selected, created, [sha for sha in selected if sha in untouched])
