"""What changed on a default branch since its last commit that passed: which commit broke it, and by how much."""

from __future__ import annotations

from sqlalchemy.orm import Session

from gprojci_service.models import Project
from gprojci_service.pages import repository, values_repository
from gprojci_service.pages.formatting import by_unit, metric, ratio
from gprojci_service.pages.overview_views import Moved, SinceGreen
from gprojci_service.pages.repository import JobRow
from gprojci_service.pages.scatter import ERRORS, TIMES
from gprojci_service.results.comparison import MOVED

MOST_CHANGES = 3


def since_green(session: Session, project: Project, newest: JobRow) -> SinceGreen | None:
    """What changed until `newest`, the newest judged job of the branch; None where it passes or nothing ever did."""
    if newest.verdict is None or newest.verdict.verdict == "pass":
        return None
    green = repository.newest_green(session, project, newest.job)
    if green is None:
        return None
    later = repository.judged_between(session, project, green.job, newest.job)
    broke = next(row for row in later if row.verdict is not None and row.verdict.verdict != "pass")
    return SinceGreen(
        green=green,
        broke=broke,
        commits=len({row.job.head_sha for row in later}),
        moved=_moved(session, green.job.id, newest.job.id),
        compare=f"/projects/{project.name}/compare?base={green.job.head_sha[:12]}&head={newest.job.head_sha[:12]}",
    )


def _moved(session: Session, green: int, now: int) -> tuple[Moved, ...]:
    rows = values_repository.job_values(session, (green, now), (*ERRORS, *TIMES))
    before_by_series, after = (
        {row.series.id: row for row in rows if (row.job_id, row.sample.revision) == (job_id, "head")}
        for job_id in (green, now)
    )
    found = []
    for key, row in after.items():
        before = before_by_series.get(key)
        if before is None or not before.sample.value > 0:
            continue
        times = row.sample.value / before.sample.value
        if times > MOVED:
            found.append((times, row, before))
    found.sort(key=lambda each: -each[0])
    return tuple(
        Moved(
            f"{metric(row.series.metric)} of {row.series.backend} on {row.series.case}",
            by_unit(before.sample.value, row.series.unit),
            by_unit(row.sample.value, row.series.unit),
            ratio(times),
        )
        for times, row, before in found[:MOST_CHANGES]
    )
