"""Prints the rows of a small, lived-in database at a revision of the schema, as SQL that both kinds of database take.

    python service/tests/old_databases/make.py 0014 > service/tests/old_databases/0014.sql

Each release keeps one. Those of 0001 to 0009 were made by taking the schema of 0009 back, so they hold what those
revisions could hold.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from alembic import command
from sqlalchemy import Boolean, MetaData, Table, create_engine, select, type_coerce
from sqlalchemy.orm import Session
from sqlalchemy.types import NullType

from gprojci_service.database import alembic_config
from gprojci_service.models import (
    Attempt,
    Base,
    Build,
    Commit,
    GithubReport,
    Job,
    LogChunk,
    Project,
    PullRequest,
    Report,
    Sample,
    Series,
    Token,
    Verdict,
    WebhookDelivery,
    Worker,
)
from gprojci_service.models.base import now

sys.path.insert(0, str(Path(__file__).parents[1]))
import report_parts as parts

HEAD, BASE, TOPIC = "a" * 40, "b" * 40, "c" * 40


def fill(session: Session) -> None:
    """A project with a push that was measured and passed, and a pull request that waits for an approval."""

    def add(row: Any) -> int:
        session.add(row)
        session.flush()
        return int(row.id)

    project = add(Project(name="o/r", github_id=42, clone_url="https://github.com/o/r.git", default_branch="main"))
    commits = [
        add(Commit(project_id=project, sha=sha, message="It's a \\ change", author_name="Ada", parents=[]))
        for sha in (BASE, HEAD, TOPIC)
    ]
    add(Token(name="ci", scope="write", hash="0" * 64))
    delivery = {"delivery_id": "d-1", "event": "push", "payload": {"ref": "refs/heads/main"}}
    add(WebhookDelivery(**delivery, state="processed", detail="made job 1", processed_at=now()))
    worker = add(
        Worker(name="w", hardware="cpu", device="cpu", device_name="a CPU", boot_id="boot-0001", environment={})
    )
    on = {"project_id": project, "hardware": "cpu"}
    ended = {"state": "finished", "started_at": now(), "finished_at": now()}
    shas = {"head_sha": HEAD, "base_sha": BASE, "merge_base_sha": BASE}
    job = add(Job(**on, **shas, **ended, kind="push", dedup_key="push", ref="main"))
    lease = {"lease_expires_at": now(), "deadline_at": now(), "finished_at": now()}
    steps = [{"name": "run", "started_at": "2026-01-02T03:04:05Z", "seconds": 41.5, "status": "ok"}]
    held = {"job_id": job, "worker_id": worker, "boot_id": "boot-0001", **lease}
    add(Attempt(**held, number=1, claim_id="claim-1", state="lost", failure_kind="lost_worker", steps=[]))
    attempt = add(Attempt(**held, number=2, claim_id="claim-2", state="reported", steps=steps))
    add(Build(attempt_id=attempt, revision="head", key="k", reused=False, status="ok", seconds=3.5))
    add(LogChunk(attempt_id=attempt, sequence=0, text="measuring"))
    report = add(
        Report(
            job_id=job,
            attempt_id=attempt,
            fencing_token=2,
            accepted=True,
            schema_version=1,
            body=_report(),
            manifest_head="[gate]",
            manifest_base="[gate]",
        )
    )
    key = {"backend": "gproj", "case": "late-keybias", "metric": "dq_error", "unit": "fraction"}
    series = add(Series(**on, **key, ruler_revision="f" * 40))
    for commit, revision in zip(commits, ("base", "head"), strict=False):
        add(
            Sample(
                series_id=series,
                report_id=report,
                commit_id=commit,
                revision=revision,
                value=0.002,
                low=None,
                high=None,
                count=12,
            )
        )
    judged = {"verdict": "pass", "summary": "every limit holds", "evidence": [], "policy": {}}
    add(Verdict(job_id=job, project_id=project, head_sha=HEAD, **judged))
    told = {"kind": "commit_status", "phase": "decided", "method": "POST", "path": f"/repos/o/r/statuses/{HEAD}"}
    add(GithubReport(job_id=job, payload={"state": "success"}, **told, state="recorded"))
    pull = add(
        PullRequest(
            project_id=project,
            number=7,
            title="A change",
            author_login="ben",
            head_sha=TOPIC,
            base_sha=HEAD,
            head_ref="topic",
            base_ref="main",
            from_fork=True,
        )
    )
    waits = {"head_sha": TOPIC, "base_sha": HEAD, "state": "awaiting_approval"}
    add(Job(**on, **waits, kind="pull_request", dedup_key="pull", ref="topic", pull_request_id=pull))


def _report() -> dict[str, Any]:
    subject = {"backend": "gproj", "build_key": "k", "entry": "gproj:attention"}
    return {
        "schema_version": 1,
        "created_at": "2026-01-02T03:04:05+00:00",
        "duration_seconds": 41.5,
        "seed": 0,
        "repro": "gprojci-suite bench",
        "ruler": {"version": "0.1.0", "revision": "f" * 40},
        "subjects": [subject | {"revision": "head", "commit": HEAD}, subject | {"revision": "base", "commit": BASE}],
        "environment": parts.environment("cpu"),
        "backends": [parts.backend("gproj", revision, "subject") for revision in ("head", "base")],
        "inputs": [parts.input_set("late-keybias")],
        "accuracy": parts.accuracy("late-keybias", {"head": 0.002, "base": 0.002}, spread=0.0),
        "throughput": None,
    }


def dump(url: str) -> str:
    """Every row of a database as INSERT statements, in an order that foreign keys allow."""
    engine, found, lines = create_engine(url), MetaData(), []
    found.reflect(engine)
    with engine.connect() as connection:
        for table in found.sorted_tables:
            if table.name != "alembic_version":
                raw = select(*(type_coerce(column, NullType()) for column in table.columns)).order_by(table.c.id)
                lines += [_insert(table, row) for row in connection.execute(raw)]
    return "\n".join(lines) + "\n"


def _insert(table: Table, row: Any) -> str:
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    values = ", ".join(_literal(column.type, value) for column, value in zip(table.columns, row, strict=True))
    return f'INSERT INTO "{table.name}" ({names}) VALUES ({values});'


def _literal(kind: Any, value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(kind, Boolean):
        return "TRUE" if value else "FALSE"
    return repr(value) if isinstance(value, (int, float)) else "'" + str(value).replace("'", "''") + "'"


def main(revision: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/old.sqlite"
        engine, config = create_engine(url), alembic_config()
        with engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
            with Session(connection) as session:
                fill(session)
                session.commit()
            command.downgrade(config, revision)
            connection.commit()
        print(dump(url), end="")


if __name__ == "__main__":
    assert Base.metadata.tables
    main(sys.argv[1])
