"""Fills a database with a project's life for the tests of the pages, through the gate's real decision."""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import training_example
from fastapi import FastAPI
from sqlalchemy.orm import Session

from gprojci_service.app import create_app
from gprojci_service.bisections.search import Finding
from gprojci_service.gate import service as gate
from gprojci_service.inputs.service import bundled
from gprojci_service.models import (
    Attempt,
    Bisection,
    Build,
    Commit,
    Job,
    LogChunk,
    Project,
    PullRequest,
    Report,
    Verdict,
    Worker,
    now,
)
from gprojci_service.reports import service as imported
from gprojci_service.settings import Settings
from gprojci_service.training import service as training
from gprojci_suite.contract.training import Curve, TrainingReport, is_training

sys.path.insert(0, str(Path(__file__).parent))
from test_pages_report import MANIFEST, NASTY, report_of

EXAMPLES = Path(__file__).parents[2] / "kernels" / "suite" / "examples"


class Seed:
    """Fills a database with a project's life: pushes, a pull request that breaks dQ, its fix, jobs in every state."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self.session, self.settings = session, settings
        self.start = now() - timedelta(hours=9)
        self.project = self.add(
            Project(name="gproj-ci/gproj", clone_url="file:///demo.git", html_url="https://github.com/gproj-ci/gproj")
        )
        self.worker = self.add(
            Worker(
                name="cpu-worker-1",
                hardware="cpu",
                device="cpu",
                device_name="AMD EPYC 9654",
                boot_id="boot-0001",
                environment={"python": "3.11.7", "torch": "2.13.0+cpu"},
            )
        )

    def add(self, row: Any) -> Any:
        self.session.add(row)
        self.session.flush()
        return row

    def commit(self, sha: str, message: str, hours: float, author: str = "Ada Lovelace") -> str:
        full = (sha * 10)[:40]
        self.add(
            Commit(
                project_id=self.project.id,
                sha=full,
                message=message,
                author_name=author,
                author_email="ada@example.org",
                authored_at=self.start + timedelta(hours=hours),
                parents=[],
            )
        )
        return full

    def pull_request(self, number: int, title: str, head: str, base: str) -> PullRequest:
        return self.add(
            PullRequest(
                project_id=self.project.id,
                number=number,
                title=title,
                author_login="mallory",
                head_sha=head,
                base_sha=base,
                head_ref="faster-backward",
                base_ref="main",
                html_url=f"https://github.com/gproj-ci/gproj/pull/{number}",
            )
        )

    def job(
        self,
        head: str,
        base: str | None,
        hours: float,
        *,
        pull: PullRequest | None = None,
        state: str = "queued",
        **more: Any,
    ) -> Job:
        created = self.start + timedelta(hours=hours)
        return self.add(
            Job(
                project_id=self.project.id,
                kind="pull_request" if pull else "push",
                dedup_key=f"{head}{hours}",
                head_sha=head,
                base_sha=base,
                merge_base_sha=base,
                ref=pull.head_ref if pull else "main",
                pull_request_id=pull.id if pull else None,
                hardware="cpu",
                state=state,
                created_at=created,
                **more,
            )
        )

    def attempt(self, job: Job, state: str, log: str, steps: list[dict[str, Any]]) -> Attempt:
        attempt = self.add(
            Attempt(
                job_id=job.id,
                worker_id=self.worker.id,
                number=1,
                claim_id=f"claim-{job.id}",
                boot_id="boot-0001",
                state=state,
                step="run" if state == "running" else None,
                steps=steps,
                lease_expires_at=now() + timedelta(minutes=1),
                deadline_at=now() + timedelta(hours=1),
                started_at=job.created_at,
            )
        )
        self.add(LogChunk(attempt_id=attempt.id, sequence=0, text=log))
        return attempt

    def measured(self, job: Job, report: dict[str, Any], log: str = "") -> Job:
        """Runs the real decision over a report."""
        names = ("fetch", "build", "run", "report")
        steps = [
            {"name": name, "started_at": job.created_at.isoformat(), "seconds": took, "status": "ok"}
            for name, took in zip(names, (0.8, 6.4, 41.2, 0.1), strict=True)
        ]
        attempt = self.attempt(
            job,
            "reported",
            log or "\x1b[32mfetching\x1b[0m the commit\nbuilding gproj\nmeasuring late-keybias\n",
            steps,
        )
        for revision in ("head", "base"):
            self.add(
                Build(
                    attempt_id=attempt.id,
                    revision=revision,
                    key=f"{revision}-tree-torch213",
                    reused=revision == "base",
                    status="ok",
                    seconds=3.2,
                )
            )
        self.add(
            Report(
                job_id=job.id,
                attempt_id=attempt.id,
                fencing_token=1,
                accepted=True,
                schema_version=1,
                body=report,
                manifest_head=MANIFEST,
                manifest_base=MANIFEST,
            )
        )
        job.state, job.started_at = "deciding", job.created_at + timedelta(seconds=4)
        self.session.flush()
        gate.decide_job(self.session, self.settings, job.id)
        job.finished_at = job.started_at + timedelta(seconds=52)
        self.session.flush()
        return job

    def everything(self) -> dict[str, int]:
        """The whole story; returns job numbers by name."""
        history = [
            ("1a2b", "Add GProj attention with explicit rounding points", 0.0, 1.25),
            ("2b3c", "Keep the residual of O for the backward pass", 1.0, 1.16),
            ("3c4d", "Use one softmax for both passes", 2.0, 1.1),
            ("4d5e", f"Tidy up {NASTY} in the docs", 3.0, 0.98),
            ("5e6f", "Document the zero-sum forward", 4.0, 0.96),
        ]
        jobs: dict[str, int] = {}
        base: str | None = None
        for sha, message, hours, drift in history:
            head = self.commit(sha, message, hours)
            job = self.measured(
                self.job(head, base, hours + 0.1), report_of(head, base, broken=False, base_broken=False, drift=drift)
            )
            jobs[f"push-{sha}"], base = job.id, head
        assert base is not None
        broken = self.commit(
            "6f70",
            "Skip the projection: dQ is summed in float32 anyway\n\nSaves 4% of the backward pass.",
            6.0,
            "Mallory <b>Bold</b>",
        )
        pull = self.pull_request(7, "Faster backward: skip the projection", broken, base)
        jobs["broken"] = self.measured(
            self.job(broken, base, 6.1, pull=pull), report_of(broken, base, broken=True, base_broken=False)
        ).id
        fixed = self.commit("7081", "Bring the projection back, fused this time", 7.5, "Mallory")
        fix = self.pull_request(8, "Fused projection", fixed, base)
        jobs["fixed"] = self.measured(
            self.job(fixed, base, 7.6, pull=fix), report_of(fixed, base, broken=False, base_broken=False, drift=0.93)
        ).id
        later = self.commit("8192", "Try a wider tile", 8.5)
        running = self.job(later, base, 8.8, state="running", started_at=now() - timedelta(seconds=35))
        began = (now() - timedelta(seconds=30)).isoformat()
        self.attempt(
            running,
            "running",
            "fetching 8192\nbuilding gproj at 8192\nmeasuring late-keybias: 12 of 40\n",
            [
                {"name": "fetch", "started_at": began, "seconds": 0.7, "status": "ok"},
                {"name": "build", "started_at": began, "seconds": 5.1, "status": "ok"},
                {"name": "run", "started_at": began, "seconds": None, "status": "running"},
            ],
        )
        jobs["running"] = running.id
        jobs["queued"] = self.job(self.commit("92a3", "Another idea", 8.9), base, 8.95).id
        failed = self.job(
            self.commit("a3b4", "Rename the package", 5.0),
            base,
            5.1,
            state="deciding",
            failure_kind="build_error",
            detail="pip could not build kernels/gproj: no pyproject.toml",
        )
        attempt = self.attempt(
            failed,
            "failed",
            "error: no pyproject.toml\n",
            [{"name": "build", "started_at": began, "seconds": 2.0, "status": "failed"}],
        )
        self.add(
            Build(
                attempt_id=attempt.id,
                revision="head",
                key="head-broken",
                reused=False,
                status="build_error",
                seconds=2.0,
                log_tail="\x1b[31merror\x1b[0m: no pyproject.toml\nin kernels/gproj",
            )
        )
        gate.decide_job(self.session, self.settings, failed.id)
        jobs["build_error"] = failed.id
        jobs["cancelled"] = self.job(
            self.commit("b4c5", "Superseded", 5.2), base, 5.3, state="cancelled", detail="superseded by a newer push"
        ).id
        stranger = self.commit("c5d6", "Block-sparse backward", 8.97, "A first-time author")
        fork = self.pull_request(9, "Block-sparse backward", stranger, base)
        fork.from_fork = True
        waits = {"state": "awaiting_approval", "detail": fork.untrusted}
        jobs["waiting"] = self.job(stranger, base, 8.98, pull=fork, **waits).id
        self.searches(jobs)
        return jobs

    def broken_main(self) -> dict[str, int]:
        """Three more pushes to the default branch: it passes again, then dQ breaks, and stays broken."""
        base, jobs = "5e6f" * 10, {}
        pushes = (
            ("d6e7", "Name the package as before", False),
            ("e7f8", "Sum the rows of dS in BF16", True),
            ("f809", "Say in the README how to install", True),
        )
        for place, (sha, message, broken) in enumerate(pushes):
            head = self.commit(sha, message, 8.985 + place / 200, "Grace Hopper" if sha == "e7f8" else "Ada Lovelace")
            job = self.job(head, base, 8.985 + place / 200)
            report = report_of(head, base, broken=broken, base_broken=sha == "f809")
            jobs[f"push-{sha}"], base = self.measured(job, report).id, head
        return jobs

    def searches(self, jobs: dict[str, int]) -> None:
        """Two bisections: 1 found the broken commit, 2 goes on."""
        commits = [(sha * 10)[:40] for sha in ("1a2b", "2b3c", "3c4d", "4d5e", "5e6f", "6f70")]
        measured = (
            Finding(5, "bad", 1, jobs["broken"], ratio=170.3, low=165.0, high=176.0),
            Finding(2, "good", 1, jobs["push-3c4d"], True, ratio=0.98, low=0.95, high=1.01),
            Finding(3, "skipped", 1, jobs["build_error"], reason=f"build error: {NASTY}"),
            Finding(4, "good", 1, jobs["push-5e6f"], True, ratio=0.94, low=0.91, high=0.97),
        )
        about = {"project_id": self.project.id, "hardware": "cpu", "metric": "dq_error", "commits": commits}
        found = {"state": "found", "detail": f"{commits[5]} is the first commit whose dq_error is worse"}
        for findings, more in ((measured, found), (measured[:2], {"job_id": jobs["queued"]})):
            self.add(
                Bisection(
                    **about,
                    **more,
                    backend="gproj",
                    case="late-keybias",
                    threshold=13.05,
                    max_effort=1,
                    findings=[finding.to_json() for finding in findings],
                    created_by="Ada",
                )
            )

    def examples(self) -> dict[str, int]:
        """Imports every example report of the suite; returns their numbers by file name, but for trainings, which have
        names. One more training has drifting keys, a run that diverged, and an input set that comes with the ruler."""
        by = {"sent_by": f"ada {NASTY}", "limit": self.settings.max_report_bytes}
        training.take(self.session, "story", training_story().dumps(), **by)
        found = {}
        for file in sorted(EXAMPLES.glob("*.json.gz")):
            text = gzip.decompress(file.read_bytes()).decode()
            value = json.loads(text)
            if is_training(value):
                training.take(self.session, value["name"], text, **by)
                continue
            found[file.name] = imported.take(self.session, f"{file.name} {NASTY}", text)[0].id
        return found


def training_story() -> TrainingReport:
    """Four backends with two seeds, of which one run diverged and one wrote the set late-keybias."""
    runs = []
    for backend, growth in (("fa3", 8.0), (f"mine {NASTY}", 1.5), ("gproj", 1.0), ("fp32", 1.0)):
        runs += [training_example.run(backend, seed, growth) for seed in (0, 1)]
    late = next(item for item in bundled() if item.name == "late-keybias")
    known = replace(runs[0].captures[0], content_hash=late.content_hash)
    runs[0] = replace(runs[0], captures=(known, replace(known, layer=1), *runs[0].captures))
    broken = Curve((10, 20), (5.0, math.nan), (2.0, math.inf), None)
    detail = f"the loss is NaN {NASTY}"
    runs[1] = replace(
        runs[1], status="diverged", detail=detail, steps=20, side_by_side=2, step_seconds=None, final_loss=math.nan,
        curve=broken, measured_steps=(), layers=(), captures=(), alarm_step=None,
    )  # fmt: skip
    for index, revision in ((4, "a" * 40), (5, f"package-{'b' * 40}"), (2, "c" * 40)):
        runs[index] = replace(runs[index], revision=revision)
    return training_example.report(tuple(runs), "story")


def settings_for(directory: Path) -> Settings:
    return Settings(
        database_url=f"sqlite:///{directory}/pages.sqlite",
        broker_url="redis://127.0.0.1:1/0",
        webhook_secret="a-secret-long-enough",
    )


@contextmanager
def seeding(directory: Path) -> Iterator[tuple[FastAPI, Seed]]:
    """An application over a new database in a directory, and what fills it within."""
    settings = settings_for(directory)
    app = create_app(settings)
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        yield app, Seed(session, settings)
        session.info.clear()  # the messages of a real instance; no broker is here


def addresses(jobs: dict[str, int]) -> list[str]:
    project = "/projects/gproj-ci/gproj"
    return [
        "/",
        "/?input=early-rope&metric=dk_error",
        "/projects",
        project,
        f"{project}?ref=main",
        f"{project}/history",
        f"{project}/history?metric=forward_backward_ratio_anchor&backend=gproj",
        f"{project}/history?span=all",
        f"{project}/compare",
        f"{project}/compare?base=5e6f&head=6f70",
        f"{project}/compare?base=1a2b&head=7081&tensor=dk",
        "/jobs",
        "/jobs?state=fail",
        "/regressions",
        "/training",
        "/training/story?detail=layers&backend=fa3",
        "/bisections",
        "/bisections/1",
        "/inputs",
        "/workers",
        "/reports",
        *(f"/reports/{number}" for name, number in jobs.items() if name.endswith(".json.gz")),
        *(f"/jobs/{number}" for name, number in jobs.items() if not name.endswith(".json.gz")),
    ]


def test_the_story_ends_in_pass_fail_pass(tmp_path: Path) -> None:
    with seeding(tmp_path) as (_, seed):
        jobs = seed.everything()
        verdicts = {verdict.job_id: verdict.verdict for verdict in seed.session.query(Verdict)}
    assert [verdicts[jobs[name]] for name in ("push-5e6f", "broken", "fixed")] == ["pass", "fail", "pass"]
