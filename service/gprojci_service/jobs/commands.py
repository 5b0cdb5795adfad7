"""Commands about jobs: `gprojci submit`, `status`, `logs`, `backfill` and `gprojci job …`."""

from __future__ import annotations

import sys
import time
from typing import Any

import click
import httpx

from gprojci_service import local_git
from gprojci_service.client import (
    POLL_SECONDS,
    ServiceCommand,
    ServiceGroup,
    call,
    end,
    note,
    page,
    poll,
    show,
    table,
    wants_json,
)
from gprojci_service.jobs.schemas import LOG_CURSOR, MOST_COMMITS
from gprojci_service.models.job import JOB_STATES, OPEN_STATES
from gprojci_service.progress import Progress, progress
from gprojci_service.untrusted_text import clean

STEPS = ("fetch", "build", "run", "report")
COLUMNS = ("job", "state", "hardware", "kind", "head", "verdict")


@click.command("submit", cls=ServiceCommand)
@click.argument("repo", required=False)
@click.argument("sha", required=False)
@click.option("--base", help="Commit to measure against; default: the first parent.")
@click.option("--wait/--no-wait", default=False, help="Wait for the verdict; a failed gate exits with 1.")
@click.pass_obj
def submit(client: httpx.Client, repo: str | None, sha: str | None, base: str | None, wait: bool) -> None:
    """Has commit SHA of REPO (owner/name) measured.

    In a git checkout both may be left out: REPO is then the project of its origin, SHA its HEAD, and any revision that
    git knows will do. A single argument of the form owner/name is REPO.
    """
    if repo is not None and sha is None and not local_git.REPOSITORY.fullmatch(repo):
        repo, sha = None, repo
    project = local_git.project_named(client, repo)
    head = local_git.full_sha(sha or "HEAD")
    body = {"project": project, "head_sha": head, "base_sha": local_git.full_sha(base) if base else None}
    response = client.post("/jobs", json=body)
    if response.status_code == 409 and response.json().get("error") == "JobNotOpen":
        asked = call(client, "GET", "/jobs", params={"project": project, "head_sha": head, "kind": "manual"})
        jobs = [job for job in asked if job["base_sha"] == body["base_sha"] and job["retry_of_id"] is None]
        note(f"{head[:10]} was submitted before; `gprojci job rerun` measures it again")
    elif not response.is_success:
        end(response)
    else:
        jobs = response.json()
    if wait:
        finish(wait_for(client, [job["id"] for job in jobs]))
    else:
        show(jobs, (f"job {job['id']} on {job['hardware']}: {page(client, '/jobs/' + str(job['id']))}" for job in jobs))


@click.command("status", cls=ServiceCommand)
@click.argument("what", required=False)
@click.option("--project", help="OWNER/NAME; default: the project of the checkout here.")
@click.pass_obj
def status(client: httpx.Client, what: str | None, project: str | None) -> None:
    """Says how far WHAT is: a job by its number, or a commit; without it what the whole service is busy with."""
    if what is None:
        _status_of_service(client, project)
    elif is_job(what):
        job = call(client, "GET", f"/jobs/{what}")
        show(job, _described(client, job))
    else:
        name, commit = local_git.project_named(client, project), local_git.commit_or_prefix(what)
        found = call(client, "GET", "/jobs", params={"project": name, "head_sha": commit})
        jobs = [call(client, "GET", f"/jobs/{job['id']}") for job in found]
        show(jobs, table(COLUMNS, map(_row, jobs)) if jobs else [f"no job of {name} is about {what}"])


def _status_of_service(client: httpx.Client, project: str | None) -> None:
    filters = {"state": "open", "limit": 500, **({"project": project} if project else {})}
    jobs, workers = call(client, "GET", "/jobs", params=filters), call(client, "GET", "/workers")
    lines = table(COLUMNS, map(_row, jobs)) if jobs else ["no job is open"]
    seen = [f"worker {item['name']} on {item['hardware']}, seen {item['last_seen_at'][:19]} UTC" for item in workers]
    show({"jobs": jobs, "workers": workers}, [*lines, *(seen or ["no worker has ever said hello"])])


def _row(job: dict[str, Any]) -> tuple[object, ...]:
    verdict = job.get("verdict")
    word = f"{verdict['verdict']}: {verdict['summary']}" if verdict else job["detail"] or ""
    return job["id"], job["state"], job["hardware"], job["kind"], job["head_sha"][:10], word


def _described(client: httpx.Client, job: dict[str, Any]) -> list[str]:
    lines = [f"job {job['id']} of {job['project']} on {job['hardware']}: {job['state']}"]
    lines.append(f"head {job['head_sha']}, base {job['merge_base_sha'] or job['base_sha'] or 'the first parent'}")
    for attempt in job["attempts"]:
        steps = ", ".join(f"{step['name']} {_seconds(step)}" for step in attempt["steps"])
        lines.append(f"attempt {attempt['number']}: {attempt['state']}{': ' + steps if steps else ''}")
    if job["taken_from_job"]:
        lines.append(f"not measured again: the measurement is that of job {job['taken_from_job']}")
    took = job["usage"]
    if took["measuring_share"] is not None:
        cost = "" if took["cost"] is None else f", {took['cost']:.2f} {took['currency']}"
        lines.append(f"worker {took['seconds']:.0f} s, {took['measuring_share']:.0%} of it measuring{cost}")
    return [*lines, _outcome(job), page(client, f"/jobs/{job['id']}")]


def _seconds(step: dict[str, Any]) -> str:
    return "…" if step["seconds"] is None else f"{step['seconds']:.0f} s"


def _outcome(job: dict[str, Any]) -> str:
    verdict = job["verdict"]
    if verdict:
        return f"job {job['id']}: {verdict['verdict']}: {verdict['summary']}"
    return f"job {job['id']}: {job['state']}: {job['detail'] or 'no verdict yet'}"


@click.command("logs", cls=ServiceCommand)
@click.argument("what")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended; a failed gate exits with 1.")
@click.option("--project", help="OWNER/NAME; default: the project of the checkout here.")
@click.pass_obj
def logs(client: httpx.Client, what: str, follow: bool, project: str | None) -> None:
    """Prints what a job printed: WHAT is its number, or a commit, which means the newest job about it."""
    number = int(what) if is_job(what) else _newest_job(client, what, project)
    cursor, printed = "0", ""
    while True:
        job = poll(client, f"/jobs/{number}").json()  # before its log: what it printed last is not missed
        response = poll(client, f"/jobs/{number}/log", params={"after": cursor})
        cursor = response.headers[LOG_CURSOR]
        if wants_json():
            printed += response.text
        else:
            click.echo(clean(response.text), nl=False)
        if not follow or job["state"] not in OPEN_STATES:
            break
        time.sleep(POLL_SECONDS)
    show({"job": number, "state": job["state"], "log": printed}, ())
    if follow:
        note(_outcome(job))
        sys.exit(exit_code([job]))


def _newest_job(client: httpx.Client, what: str, project: str | None) -> int:
    name, commit = local_git.project_named(client, project), local_git.commit_or_prefix(what)
    found = call(client, "GET", "/jobs", params={"project": name, "head_sha": commit, "limit": 1})
    if not found:
        raise click.UsageError(f"no job of {name} is about {what}; `gprojci submit` makes one")
    return int(found[0]["id"])


@click.command("backfill", cls=ServiceCommand)
@click.argument("commits", metavar="RANGE")
@click.option("--every", default=1, show_default=True, type=click.IntRange(1, MOST_COMMITS), help="Take every Nth.")
@click.option("--project", help="OWNER/NAME; default: the project of the checkout here.")
@click.option("--wait/--no-wait", default=False, help="Wait until all of them have ended.")
@click.pass_obj
def backfill(client: httpx.Client, commits: str, every: int, project: str | None, wait: bool) -> None:
    """Has every Nth commit of RANGE (OLD..NEW, along first parents) measured, where it was not yet.

    Needs a git checkout. These jobs are claimed after all others, so no push waits behind them.
    """
    old, dots, new = commits.partition("..")
    if not (old and dots) or new.startswith("."):
        raise click.UsageError(f"RANGE {commits!r}: write OLD..NEW, such as v1.0..main")
    name = local_git.project_named(client, project)
    body = {"project": name, "commits": local_git.first_parent_range(old, new or "HEAD"), "every": every}
    made = call(client, "POST", "/jobs/backfill", json=body)
    note(f"{len(made['selected'])} commits selected, {len(made['measured'])} of them measured before")
    if wait and made["created"]:
        jobs = wait_for(client, made["created"])
        show(jobs, map(_outcome, jobs))
    else:
        jobs = made["created"]
        show(made, [f"jobs {jobs[0]} to {jobs[-1]} are queued" if jobs else "nothing is left to be measured"])


@click.group(cls=ServiceGroup)
def job() -> None:
    """Single jobs: list, wait, rerun, cancel, approve."""


@job.command("list")
@click.option("--project", help="Full name, owner/name.")
@click.option("--state", type=click.Choice(("open", *JOB_STATES)), help="A job state; open: any that has not ended.")
@click.option("--kind", help="push, pull_request, merge_group, manual, baseline, bisect, backfill or schedule.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 500), help="Show at most so many.")
@click.pass_obj
def job_list(client: httpx.Client, project: str | None, state: str | None, kind: str | None, limit: int) -> None:
    """Lists jobs, newest first."""
    given = {"project": project, "state": state, "kind": kind, "limit": limit}
    jobs = call(client, "GET", "/jobs", params={key: value for key, value in given.items() if value})
    show(jobs, table(COLUMNS[:-1], (_row(entry)[:-1] for entry in jobs)))


@job.command("wait")
@click.argument("job_id", type=int)
@click.pass_obj
def job_wait(client: httpx.Client, job_id: int) -> None:
    """Waits for a job's verdict; a failed gate exits with 1."""
    finish(wait_for(client, [job_id]))


@job.command("rerun")
@click.argument("job_id", type=int)
@click.pass_obj
def job_rerun(client: httpx.Client, job_id: int) -> None:
    """Measures the same commits once more."""
    made = call(client, "POST", f"/jobs/{job_id}/rerun")
    show(made, [f"job {made['id']}"])


@job.command("cancel")
@click.argument("job_id", type=int)
@click.option("--reason", default="cancelled by hand", show_default=True)
@click.pass_obj
def job_cancel(client: httpx.Client, job_id: int, reason: str) -> None:
    """Cancels an open job."""
    ended = call(client, "POST", f"/jobs/{job_id}/cancel", json={"reason": reason})
    show(ended, [f"job {job_id} is cancelled"])


@job.command("approve")
@click.argument("job_id", type=int)
@click.argument("head_sha")
@click.pass_obj
def job_approve(client: httpx.Client, job_id: int, head_sha: str) -> None:
    """Lets a fork's commit (full SHA) be built."""
    approved = call(client, "POST", f"/jobs/{job_id}/approve", json={"head_sha": head_sha})
    show(approved, [f"job {job_id} is queued"])


def is_job(what: str) -> bool:
    """Whether this is a job's number; a commit of nothing but digits is named by its full SHA."""
    return what.isascii() and what.isdigit() and len(what) < 40


def wait_for(client: httpx.Client, job_ids: list[int]) -> list[dict[str, Any]]:
    """The jobs once they have ended, in that order; shows meanwhile how far they are."""
    ended: list[dict[str, Any]] = []
    with progress("measuring", len(job_ids) * len(STEPS)) as bar:
        for job_id in job_ids:
            while True:
                entry: dict[str, Any] = poll(client, f"/jobs/{job_id}").json()
                _draw(bar, len(ended), entry)
                if entry["state"] not in OPEN_STATES:
                    break
                time.sleep(POLL_SECONDS)
            ended.append(entry)
    return ended


def _draw(bar: Progress, before: int, job: dict[str, Any]) -> None:
    steps = job["attempts"][-1]["steps"] if job["attempts"] else []
    running = next((step["name"] for step in steps if step["status"] == "running"), job["state"])
    done = len(STEPS) if job["state"] not in OPEN_STATES else sum(step["status"] != "running" for step in steps)
    bar.reach(before * len(STEPS) + min(done, len(STEPS)), f"job {job['id']}: {running}")


def finish(jobs: list[dict[str, Any]]) -> None:
    """Prints how jobs ended, and ends the command by their verdicts."""
    show(jobs, map(_outcome, jobs))
    sys.exit(exit_code(jobs))


def exit_code(jobs: list[dict[str, Any]]) -> int:
    """1 where a gate failed, 3 where a job has no verdict or was not judged by a fault of the service, else 0."""
    words = {entry["verdict"]["verdict"] if entry["verdict"] else "error" for entry in jobs}
    return 1 if "fail" in words else 3 if "error" in words else 0
