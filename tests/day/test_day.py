"""A day with the service, from a pull request that ruins dQ to a slow drift that is found at night and closed.

Everything is real but GitHub (`day_github.py`), the measurements (`day_worker.py`) and the time that passes
(`day_clock.py`): processes, PostgreSQL, Redis, HTTP, signatures. The day comes twice, in calm weather and with every
tenth message lost, doubled or delayed (`day_storm.py`), and must end the same.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from day_github import NAME, PullRequest
from day_history import Kernel
from day_service import DayService
from sqlalchemy import func, select

from gprojci_service.models import GithubReport, Job, Verdict

PAST = 30
"""Commits that main has in the morning: what the trend needs to know the noise."""
GOOD = Kernel()
RUINED = Kernel(dq_error=43.9)
SLOWER = Kernel(over_anchor=1.30 * 1.06)  # the gate lets 10% pass
FINAL = {"success", "failure", "neutral"}
CALM, STORM = None, 27
"""In this storm the merge queue is hit: of its webhooks one is lost, one delayed and one doubled."""


@pytest.mark.parametrize("seed", [CALM, STORM], ids=["calm", "storm"])
def test_a_day(begin: Any, seed: int | None) -> None:
    service = begin(seed)
    github = service.github

    with_a_past(service)
    ruined = ruined_and_mended(service)
    before_drift = github.history.branches["main"]

    slow = merged(service, 8, "Fewer registers, more waves", SLOWER)
    merged(service, 9, "Names that say what they hold", SLOWER)
    service.day.throttle_pushes = True  # a hot afternoon
    last = merged(service, 10, "One kernel less to launch", SLOWER)
    service.day.throttle_pushes = False
    assert service.get("/regressions") == [], "each of them is within the gate's margins"

    regression = night(service)
    assert (regression["state"], regression["first_bad_sha"]) == ("new", slow)
    assert bisected(service, before_drift, last) == slow

    closed(service, regression["id"])
    service.until("all is told", lambda: pending(service) == 0)
    the_day_ends_well(service, ruined, last)
    if seed is CALM:
        assert service.rounds == 0, "in calm weather nothing has to be made up for"
    else:
        assert github.storm.dealt == {
            (channel, fate) for channel in ("webhook", "github", "worker") for fate in ("lost", "doubled", "delayed")
        }


def with_a_past(service: DayService) -> None:
    """The App is installed on a repository that has a history, which is measured too."""
    github, clock = service.github, service.clock
    github.permissions |= {"ben": "write"}
    sha, parents = "", ()
    for number in range(PAST):
        moment = clock.now() - timedelta(hours=24 * (PAST - number))
        sha = github.commit("main", f"Change {number}", GOOD, *parents, moment=moment)
        parents = (sha,)
    github.install()
    github.push_main(github.history.commits[sha].parents[0])
    service.until("the head is measured", lambda: finished(service, sha, "push"))
    history = github.history.first_parents("main")[1:]
    service.ask("POST", "/jobs/backfill", project=NAME, commits=history)
    service.until("the history is measured", lambda: all(finished(service, one) for one in history))


def ruined_and_mended(service: DayService) -> str:
    """A pull request makes dQ useless, which a rerun confirms; its fix passes and is merged through the queue. Returns
    the commit that ruined it."""
    github = service.github
    pull_request = github.open_pull_request(7, "Skip the row sums", RUINED)
    ruined = pull_request.head
    service.until("the check fails", lambda: github.conclusions(ruined) == ["failure"])
    service.until("the status fails", lambda: github.status(ruined) == "failure")
    with pytest.raises(AssertionError, match="main is protected"):
        github.enqueue(pull_request)
    told = next(run for run in github.check_runs.values() if run["head_sha"] == ruined)
    assert re.search(r"dQ error on late-keybias .*4,[34]\d\d%", told["output"]["title"]), told["output"]["title"]

    command(service, pull_request, "/gprojci rerun")
    service.until("it fails again", lambda: github.conclusions(ruined) == ["failure", "failure"])
    github.push_fix(pull_request, "Row sums in float32", GOOD)
    service.until("the fix passes", lambda: github.conclusions(pull_request.head) == ["success"])
    merge(service, pull_request)
    return ruined


def command(service: DayService, pull_request: PullRequest, body: str) -> None:
    """Ben comments, once."""
    number = service.github.comment(pull_request, "ben", body)
    service.until(f"{body} is answered", lambda: service.github.reaction(number))
    assert service.github.reaction(number) == {"rocket"}


def merged(service: DayService, number: int, title: str, kernel: Kernel) -> str:
    """A pull request from its opening to main; returns the merge commit."""
    pull_request = service.github.open_pull_request(number, title, kernel)
    if service.github.storm.rages and number == 8:
        service.day.power_cut_at = pull_request.head
    service.until(f"{title} passes", lambda: service.github.status(pull_request.head) == "success")
    return merge(service, pull_request)


def merge(service: DayService, pull_request: PullRequest) -> str:
    """Through the merge queue; returns what main is then."""
    service.until("the status is green", lambda: service.github.status(pull_request.head) == "success")
    service.github.enqueue(pull_request)
    service.until("it is merged", lambda: pull_request.merged)
    head = service.github.history.branches["main"]
    service.until("main is measured", lambda: finished(service, head, "push"))
    return head


def night(service: DayService) -> dict[str, Any]:
    """The nightly run, twelve hours from now, measures main once more; returns the regression that opens with it."""
    hour = (datetime.now(UTC) + timedelta(hours=12)).hour
    schedule = service.ask("PUT", f"/projects/{NAME}/schedule", cron=f"0 {hour} * * *")
    due = datetime.fromisoformat(str(schedule["next_run_at"])) - datetime.now(UTC)
    service.pass_time(due + timedelta(seconds=1))
    head = service.github.history.branches["main"]
    service.until("the night's run is measured", lambda: finished(service, head, "schedule"))
    (regression,) = service.get("/regressions")
    return dict(regression)


def bisected(service: DayService, good: str, bad: str) -> str:
    """`gprojci bisect --good GOOD --bad BAD --metric forward_backward_seconds`; returns the commit that it names."""
    line = service.github.history.first_parents("main")
    commits = line[line.index(good) + 1 : line.index(bad) + 1]
    body = {"project": NAME, "good": good, "commits": commits, "metric": "forward_backward_seconds"}
    number = service.ask("POST", "/bisections", **body)["id"]
    service.until("the search ends", lambda: service.get(f"/bisections/{number}")["state"] != "running")
    found = service.get(f"/bisections/{number}")
    assert found["state"] == "found", found
    return str(found["first_bad"])


def closed(service: DayService, number: int) -> None:
    """Acknowledged, mended by one more pull request, and closed by naming that."""
    service.ask("POST", f"/regressions/{number}/state", state="acknowledged", reason="Ben looks")
    service.ask("PUT", f"/regressions/{number}/owner", owner="ben")
    mended = merged(service, 11, "Back to as many registers", GOOD)
    service.ask("POST", f"/regressions/{number}/state", state="fixed", commit=mended)


def the_day_ends_well(service: DayService, ruined: str, throttled: str) -> None:
    """What holds in the evening, whatever the weather was."""
    github = service.github
    assert github.violations == []
    with service.context.database.session(writes=False) as session:
        jobs = [(job, verdict) for job, verdict in session.execute(select(Job, Verdict).outerjoin(Verdict))]
        failed = session.scalars(select(GithubReport.detail).where(GithubReport.state == "failed")).all()
    assert failed == []
    assert {job.state for job, _ in jobs} == {"finished"}
    words = {(job.kind, job.head_sha): verdict.verdict for job, verdict in jobs}
    assert {about: word for about, word in words.items() if word != "pass"} == {
        ("pull_request", ruined): "fail",
        ("manual", ruined): "fail",
        ("push", throttled): "neutral",
    }
    assert [job.head_sha for job, _ in jobs if job.retry_of_id is not None] == [ruined]
    made = Counter((job.kind, job.head_sha) for job, _ in jobs)
    assert max(made.values()) == 1, made.most_common(3)
    assert Counter(service.day.measured) == made, "nothing is measured twice"

    for sha in {run["head_sha"] for run in github.check_runs.values()}:
        conclusions = github.conclusions(sha)
        assert set(conclusions) <= FINAL, (sha, conclusions)
        assert github.status(sha) == ("failure" if sha == ruined else "success")
    ours = [one for one in github.comments.values() if one["performed_via_github_app"]]
    assert len(ours) == 1
    assert "/gprojci rerun" in ours[0]["body"]

    (regression,) = service.get("/regressions")
    history = service.get(f"/regressions/{regression['id']}")["events"]
    states = [(event["before"], event["after"]) for event in history if event["kind"] in ("opened", "state")]
    assert states == [(None, "new"), ("new", "acknowledged"), ("acknowledged", "fixed")]


def finished(service: DayService, sha: str, kind: str | None = None) -> bool:
    """Whether a commit has a finished job, of that kind if one is named."""
    with service.context.database.session(writes=False) as session:
        query = select(func.count()).select_from(Job).where(Job.head_sha == sha, Job.state == "finished")
        return bool(session.scalar(query.where(Job.kind == kind) if kind else query))


def pending(service: DayService) -> int:
    """How many messages to GitHub wait in the outbox."""
    with service.context.database.session(writes=False) as session:
        query = select(func.count()).select_from(GithubReport).where(GithubReport.state == "pending")
        return int(session.scalar(query) or 0)
