"""`gprojci doctor`: says what is wrong, and what to do about it, against real and missing parts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner
from github_server import app_key
from sqlalchemy import text, update

from gprojci_service.cli import cli
from gprojci_service.context import Context
from gprojci_service.models import Worker, now
from gprojci_service.operating import doctor
from gprojci_service.settings import load_settings

PERMISSIONS = {"checks": "write", "statuses": "write", "contents": "read", "pull_requests": "write", "metadata": "read"}


def found(context: Context) -> dict[str, doctor.Check]:
    return {check.name: check for check in doctor.examine(context)}


class GitHub(BaseHTTPRequestHandler):
    """GitHub's `GET /app`, in the part of its shape that is read."""

    permissions: dict[str, str] = PERMISSIONS
    date = ""

    def do_GET(self) -> None:
        body = json.dumps({"slug": "gprojci-of-a-team", "permissions": self.permissions}).encode()
        self.send_response_only(200)
        self.send_header("Date", self.date or self.date_time_string())
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the tests' output is theirs."""


@pytest.fixture
def github() -> Iterator[type[GitHub]]:
    """The handler's class, whose attributes a test changes; `url` is where it answers."""
    handler = type("Handler", (GitHub,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    handler.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    yield handler
    server.shutdown()
    server.server_close()


def test_a_service_that_stands_is_told_what_is_missing_around_it(service, tmp_path):
    settings = service.settings.model_copy(
        update={"upload_dir": tmp_path / "uploads", "public_url": "http://127.0.0.1:9"}
    )
    checks = found(Context.open(settings))
    outcomes = {name: check.outcome for name, check in checks.items()}
    assert outcomes == {
        "database": "ok",
        "schema": "ok",
        "clock": "ok",
        "worker of cpu": "warning",
        "webhooks": "ok",
        "broker": "ok",
        "task worker": "wrong",
        "disk": outcomes["disk"],
        "GitHub": "warning",
        "public address": "warning",
    }
    assert [name for name, check in checks.items() if bool(check.to_do) != (check.outcome != "ok")] == []
    assert "celery -A gprojci_service.task_worker" in checks["task worker"].to_do


def test_jobs_without_a_worker_a_drained_one_and_webhooks_that_wait(service, push_payload):
    service.hello()
    assert found(service.context)["worker of cpu"].found == "host-1"
    service.client.post("/api/v1/workers/host-1/drain", headers=service.write_headers)
    assert found(service.context)["worker of cpu"].to_do == "`gprojci worker resume host-1`"
    service.deliver("push", push_payload())
    service.work_off()
    service.deliver("push", push_payload("c" * 40))
    with service.context.database.session(writes=True) as session:
        session.execute(update(Worker).values(last_seen_at=now() - timedelta(hours=1)))
        session.execute(text("UPDATE webhook_delivery SET received_at = '2026-01-02 03:04:05+00:00'"))
        session.execute(text("UPDATE alembic_version SET version_num = '0009'"))
    checks = found(service.context)
    assert (checks["worker of cpu"].outcome, checks["webhooks"].outcome) == ("wrong", "wrong")
    assert checks["webhooks"].found.startswith("1 wait, the oldest since 2026-01-02")
    assert (checks["schema"].outcome, checks["schema"].to_do) == ("wrong", "run `gprojci migrate`")


def test_nothing_answers(tmp_path):
    environment = {
        "GPROJCI_DATABASE_URL": "postgresql+psycopg://nobody@127.0.0.1:9/none",
        "GPROJCI_BROKER_URL": "redis://127.0.0.1:9/0",
        "GPROJCI_WEBHOOK_SECRET": "x" * 16,
        "GPROJCI_UPLOAD_DIR": str(tmp_path),
        "GPROJCI_GITHUB_TOKEN": "t",
        "GPROJCI_GITHUB_API_URL": "http://127.0.0.1:9",
        "GPROJCI_PUBLIC_URL": "http://127.0.0.1:9",
    }
    done = CliRunner(env=environment).invoke(cli, ["doctor"])
    assert done.exit_code == 3
    for name in ("database", "broker", "task worker", "GitHub"):
        assert f"WRONG    {name}: " in done.output
    assert "→ GPROJCI_BROKER_URL: is the address right" in done.output
    assert "schema" not in done.output
    as_json = json.loads(CliRunner(env=environment).invoke(cli, ["doctor", "--json"]).stdout)
    assert {check["outcome"] for check in as_json} <= {"ok", "warning", "wrong"}


@pytest.mark.parametrize(
    ("permissions", "outcome", "words"),
    [
        (PERMISSIONS, "ok", "GitHub App gprojci-of-a-team, with all permissions"),
        ({**PERMISSIONS, "pull_requests": "read"}, "wrong", "lacks pull_requests: write"),
    ],
)
def test_the_app_is_asked_who_it_is_and_what_it_may(sqlite_url, github, tmp_path, permissions, outcome, words):
    key = tmp_path / "app.pem"
    key.write_text(app_key()[0])
    github.permissions = permissions
    about = {"github_app_id": "1", "github_app_key_file": key, "github_api_url": github.url, "webhook_secret": "x" * 16}
    context = Context.open(load_settings(database_url=sqlite_url, broker_url="redis://127.0.0.1:9/0", **about))
    check = doctor.credentials(context)
    assert (check.outcome, words in check.found) == (outcome, True), check
    assert [one.outcome for one in doctor.github_clock(context)] == ["ok"]
    github.date = "Fri, 02 Jan 2026 03:04:05 GMT"
    assert [one.outcome for one in doctor.github_clock(context)] == ["wrong"]
