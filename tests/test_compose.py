"""docker-compose.yml names only what exists: variables, build files, commands; and keeps what it promises."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.metadata
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
WORKERS = [name for name in SERVICES if name.startswith("worker")]


def build_of(name: str) -> tuple[Path, str]:
    """The build file of a service, and its text."""
    path = ROOT / SERVICES[name]["build"]["dockerfile"]
    return path, path.read_text()


def command_of(name: str) -> list[str]:
    """What a service runs: its command, else that of its image."""
    if "command" in SERVICES[name]:
        return list(SERVICES[name]["command"])
    return list(yaml.safe_load(re.findall(r"^CMD (.+)$", build_of(name)[1], re.MULTILINE)[-1]))


def variables() -> set[str]:
    """Every variable that the file takes from its environment."""
    used = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", TEXT))
    for service in SERVICES.values():
        used |= {name for name, value in service.get("environment", {}).items() if value is None}
    return used


def test_compose_follows_its_specification() -> None:
    tool = Path(sys.executable).parent / "check-jsonschema"
    command = [tool, "--builtin-schema", "vendor.compose-spec", ROOT / "docker-compose.yml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_build_files_pass_their_linter() -> None:
    tool = Path(sys.executable).parent / "hadolint"
    files = sorted((ROOT / "docker").glob("*.Dockerfile"))
    assert {ROOT / service["build"]["dockerfile"] for service in SERVICES.values() if "build" in service} == set(files)
    done = subprocess.run([tool, "--no-color", *files], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_build_files_hold_what_the_script_that_performs_them_knows() -> None:
    perform = runpy.run_path(str(ROOT / "docker" / "perform.py"))
    for path in (ROOT / "docker").glob("*.Dockerfile"):
        found = perform["instructions"](path.read_text())
        assert {word for word, _ in found} <= set(perform["KNOWN"]), path.name
        images = [
            perform["expand"](rest, {"BASE": "debian:12.11-slim"}).split(" AS ")[0]
            for word, rest in found
            if word == "FROM"
        ]
        assert [image for image in images if not any(re.fullmatch(base, image) for base in perform["BASES"])] == []


def test_the_services_are_these() -> None:
    assert set(SERVICES) == {"postgres", "redis", "migrate", "backup", "web", "tasks", "worker", "worker-cpu"}
    assert (SERVICES["worker"]["profiles"], SERVICES["worker-cpu"]["profiles"]) == (["gpu"], ["cpu"])
    assert SERVICES["worker"]["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]


def test_every_variable_is_in_the_example_and_no_other() -> None:
    example = (ROOT / ".env.example").read_text()
    assert set(re.findall(r"^#?([A-Z_]+)=", example, re.MULTILINE)) == variables()


def test_the_example_starts_nothing_by_itself() -> None:
    example = dict(re.findall(r"^([A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert [name for name, value in example.items() if value] == ["GPROJCI_PUBLIC_URL"]


def test_every_setting_that_is_handed_on_exists() -> None:
    from opentelemetry.sdk import environment_variables

    from gprojci_service.settings import Settings as ServiceSettings
    from gprojci_workers.settings import Settings as WorkerSettings

    for name in OURS:
        model = WorkerSettings if name in WORKERS else ServiceSettings
        known = {f"GPROJCI_{field.upper()}" for field in model.model_fields}
        files = {secret.upper() for secret in SERVICES[name]["secrets"] if secret.startswith("gprojci_")}
        assert not files & set(SERVICES[name]["environment"]), "a variable would go before the file"
        handed_on = {key for key in SERVICES[name]["environment"] if not key.startswith("OTEL_")}
        assert all(key in vars(environment_variables) for key in set(SERVICES[name]["environment"]) - handed_on)
        given = handed_on | files
        assert given <= known, name
        needed = {f"GPROJCI_{field.upper()}" for field, info in model.model_fields.items() if info.is_required()}
        assert needed <= given, name
        if name == "web":
            assert given == known


def test_secrets_are_files_that_a_script_makes(tmp_path: Path) -> None:
    assert re.findall(r"(?i)^ *\S*(?:password|secret|token)\S*: .*\$\{(?!GPROJCI_SECRETS)", TEXT, re.MULTILINE) == []
    used = {name for service in SERVICES.values() for name in service.get("secrets", [])}
    assert used == set(COMPOSE["secrets"])
    made: list[dict[str, str]] = []
    for _ in range(2):
        command = [ROOT / "docker" / "make-secrets.sh", tmp_path / "secrets"]
        subprocess.run(command, check=True, timeout=30)
        made.append({path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()})
    assert made[0] == made[1], "what is there is kept"
    assert set(made[0]) == used - {"github-app-key"}
    for name in set(made[0]) - {"github-app-key"}:
        assert COMPOSE["secrets"][name]["file"] == f"${{GPROJCI_SECRETS:-./secrets}}/{name}"
    password = made[0]["postgres_password"].strip()
    assert re.fullmatch("[0-9a-f]{64}", password)
    assert f":{password}@postgres:" in made[0]["gprojci_database_url"]
    assert f":{made[0]['redis_password'].strip()}@redis:" in made[0]["gprojci_broker_url"]
    assert (tmp_path / "secrets").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_holds_no_secret_but_its_token_and_the_brokers(name: str) -> None:
    assert SERVICES[name]["secrets"] == ["gprojci_broker_url", "gprojci_worker_token"]
    assert [name for name in SERVICES[name]["environment"] if re.search("DATABASE|GITHUB|SECRET|TOKEN", name)] == []
    assert SERVICES[name]["networks"] == ["queue"]


@pytest.mark.parametrize("name", OURS)
def test_build_files_copy_what_exists_and_is_not_ignored(name: str) -> None:
    path, text = build_of(name)
    assert path.exists()
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in re.findall(r"^COPY (?!--from)(\S+) \S+$", text, re.MULTILINE):
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in kept), f".dockerignore leaves out {source}"
    assert re.search(r"^USER (?!0|root)", text, re.MULTILINE), "runs as a user of its own"


@pytest.mark.parametrize("name", OURS)
def test_commands_exist(name: str) -> None:
    words = command_of(name)
    scripts = {entry.name for entry in importlib.metadata.entry_points(group="console_scripts")}
    assert words[0] in scripts
    if words[0] == "uvicorn":
        module, _, factory = words[words.index("--factory") + 1].partition(":")
        assert callable(getattr(importlib.import_module(module), factory))
    if words[0] == "gprojci":
        from gprojci_service.cli import cli

        assert words[1] in cli.commands


def test_the_celery_application_is_importable_and_knows_its_tasks() -> None:
    words = command_of("tasks")
    assert words[words.index("-Q") + 1] == "service"
    look = f"import {words[words.index('-A') + 1]} as module; assert 'gprojci.decide' in module.app.tasks"
    settings = {
        "GPROJCI_DATABASE_URL": "sqlite://",
        "GPROJCI_BROKER_URL": "redis://127.0.0.1:9/0",
        "GPROJCI_WEBHOOK_SECRET": "x" * 16,
    }
    done = subprocess.run([sys.executable, "-c", look], env=settings, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_timetable_is_in_exactly_one_place() -> None:
    with_beat = [name for name in OURS if "--beat" in command_of(name)]
    assert with_beat == ["tasks"]
    assert SERVICES["tasks"]["deploy"]["replicas"] == 1


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_watched_limited_and_confined(name: str) -> None:
    service = SERVICES[name]
    assert "healthcheck" in service or service["restart"] == "no", "a health check, or one-shot"
    assert service["read_only"] is True
    assert service["tmpfs"]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["user"] not in ("0", "root")
    assert {"memory", "pids"} <= set(service["deploy"]["resources"]["limits"])


@pytest.mark.parametrize("name", [name for name in SERVICES if "build" not in SERVICES[name]])
def test_foreign_images_are_pinned_by_a_full_version(name: str) -> None:
    assert re.search(r":\d+\.\d+", SERVICES[name]["image"])


def test_a_workers_memory_limit_is_above_that_of_its_kernels() -> None:
    kernels = int(re.findall(r"GPROJCI_MEMORY_BYTES:-(\d+)", TEXT)[0])
    for name in WORKERS:
        assert kernels < int(SERVICES[name]["deploy"]["resources"]["limits"]["memory"].removesuffix("g")) * 2**30
