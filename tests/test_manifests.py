"""systemd units and Kubernetes manifests name only what exists, and keep the promises that compose keeps."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gprojci_service.settings import Settings as ServiceSettings
from gprojci_workers.settings import Settings as WorkerSettings

DOCKER = Path(__file__).parents[1] / "docker"
UNITS = {path.name: path.read_text() for path in sorted((DOCKER / "systemd").glob("*.service"))}
MANIFESTS = [
    document
    for path in sorted((DOCKER / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
PODS: dict[str, dict[str, Any]] = {
    document["metadata"]["name"]: document["spec"]["template"]["spec"]
    for document in MANIFESTS
    if "template" in document.get("spec", {})
}
COMPOSE = yaml.safe_load((DOCKER.parent / "docker-compose.yml").read_text())
SETTINGS = {
    kind: {f"GPROJCI_{field.upper()}": info.is_required() for field, info in model.model_fields.items()}
    for kind, model in (("service", ServiceSettings), ("worker", WorkerSettings))
}


def kind_of(name: str) -> str:
    return "worker" if "worker" in name else "service"


def starts(words: list[str]) -> bool:
    """Whether a command is one of ours, or a module of ours."""
    program = Path(words[0]).name
    if program == "python":
        return bool(importlib.import_module(words[words.index("-m") + 1]))
    return program in {entry.name for entry in importlib.metadata.entry_points(group="console_scripts")}


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_what_is_there_under_settings_that_are_there(name: str) -> None:
    known = SETTINGS[kind_of(name)]
    (command,) = re.findall(r"^ExecStart=(.+)$", UNITS[name], re.MULTILINE)
    assert starts(command.split())
    credentials = dict(re.findall(r"^LoadCredential=(\w+):(\S+)$", UNITS[name], re.MULTILINE))
    assert {f"/etc/gprojci/secrets/{one}" for one in credentials} == set(credentials.values())
    assert {one.upper() for one in credentials} <= known.keys()
    assert set(re.findall(r"\b(GPROJCI_\w+)=", UNITS[name])) <= known.keys()
    given_by_hand = {"GPROJCI_SERVICE_URL"}
    needed = {setting for setting, required in known.items() if required} - given_by_hand
    assert needed <= {one.upper() for one in credentials}
    for promise in ("NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes"):
        assert promise in UNITS[name]
    assert re.search(r"^(User=gprojci|DynamicUser=yes)", UNITS[name], re.MULTILINE)


@pytest.mark.parametrize(("name", "service"), [("web", "web"), ("tasks", "tasks"), ("worker@", "worker")])
def test_a_unit_has_the_secrets_that_compose_has(name: str, service: str) -> None:
    credentials = set(re.findall(r"^LoadCredential=(\w+):", UNITS[f"gprojci-{name}.service"], re.MULTILINE))
    assert credentials == set(COMPOSE["services"][service]["secrets"]) - {"github-app-key"}


@pytest.mark.parametrize("name", ["web", "tasks"])
def test_what_works_on_the_database_waits_for_its_schema(name: str) -> None:
    unit = UNITS[f"gprojci-{name}.service"]
    for first in ("After", "Requires"):
        assert "gprojci-migrate.service" in re.findall(rf"^{first}=(.+)$", unit, re.MULTILINE)[0].split()
    assert [container["command"] for container in PODS[name]["initContainers"]] == [["gprojci", "migrate"]]
    assert COMPOSE["services"][name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_the_timetable_has_one_unit_and_one_pod() -> None:
    assert [name for name, text in UNITS.items() if "--beat" in text] == ["gprojci-tasks.service"]
    assert [name for name, pod in PODS.items() if "--beat" in str(pod)] == ["tasks"]
    (tasks,) = [document for document in MANIFESTS if document["metadata"]["name"] == "tasks"]
    assert (tasks["spec"]["replicas"], tasks["spec"]["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for name, text in UNITS.items():
        # What it starts is not installed here; everything else in the unit is looked at.
        (tmp_path / name).write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    files = [str(tmp_path / name.replace("@.", "@0.")) for name in UNITS]
    (tmp_path / "gprojci-worker@0.service").write_text((tmp_path / "gprojci-worker@.service").read_text())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_confined_limited_and_watched(name: str) -> None:
    pod = PODS[name]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        context = container["securityContext"]
        assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    if name != "worker":
        assert any("Probe" in key for key in pod["containers"][0])


@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_the_image_user_and_secrets_that_compose_has(name: str) -> None:
    pod, service = PODS[name], COMPOSE["services"][name]
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        assert container["image"] == service["image"]
    assert str(pod["securityContext"]["runAsUser"]) == service["user"]
    (volume,) = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    assert {item["key"] for item in volume["items"]} == set(service["secrets"]) - {"github-app-key"}
    assert all(item["key"] == item["path"] for item in volume["items"])


def test_commands_and_settings_of_pods_exist() -> None:
    (configuration,) = [document["data"] for document in MANIFESTS if document["kind"] == "ConfigMap"]
    assert configuration.keys() <= SETTINGS["service"].keys()
    for name in ("web", "tasks"):
        for container in (*PODS[name]["containers"], *PODS[name].get("initContainers", [])):
            assert starts(container["command"])
            assert container["envFrom"] == [{"configMapRef": {"name": "gprojci"}}]
    assert {entry["name"] for entry in PODS["worker"]["containers"][0]["env"]} <= SETTINGS["worker"].keys()
    for probe in re.findall(r"'path': '([^']+)', 'port'", str(PODS["web"])):
        assert probe in ("/healthz", "/readyz")
