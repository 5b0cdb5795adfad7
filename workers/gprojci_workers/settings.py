"""The worker's configuration, read from the environment in this one place."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Literal

import psutil
from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ConfigurationError(Exception):
    """A setting is missing or wrong; the message names the variable."""


CREDENTIALS = (
    ".ssh",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".docker",
    ".kube",
    ".gnupg",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    ".cache/huggingface/token",
)


def _machine_memory() -> int:
    """80 % of what this machine, or the container this runs in, has."""
    total = psutil.virtual_memory().total
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return int(min(total, int(text) if text.isdigit() else total) * 0.8)


class Settings(BaseSettings):
    """Every setting; the variable is the field's name in capitals behind `GPROJCI_`."""

    model_config = SettingsConfigDict(env_prefix="GPROJCI_", extra="ignore")

    service_url: str = Field(description="Address of the service: `https://gprojci.example.com`.")
    worker_token: SecretStr = Field(description="Token of scope worker (`gprojci token create NAME --scope worker`).")
    broker_url: str = Field(description="Celery broker, the same as the service's.")
    worker_name: str = Field(
        default_factory=socket.gethostname, description="Unique name of this worker; default: the host's name."
    )
    device: str = Field("", description="cpu or cuda; default: cuda where `nvidia-smi` finds a GPU.")
    device_name: str = Field(
        "", description="Name of the device for the pages; default: as the driver or kernel tells it."
    )
    hardware: str = Field(
        "", description="Hardware class this worker measures for; default: `cpu`, or the GPU's name as a slug."
    )
    cache_dir: Path = Field(Path.home() / ".cache" / "gprojci", description="Where clones and builds are kept.")
    input_dir: Path | None = Field(None, description="Directory with input sets beside those the suite bundles.")
    ruler_python: Path = Field(
        Path(sys.executable), description="Interpreter whose environment holds gprojci-suite and torch."
    )
    memory_bytes: int = Field(
        default_factory=_machine_memory,
        gt=0,
        description="Most memory a build or measurement may use; default: 80 % of the machine's.",
    )
    output_bytes: int = Field(50_000_000, gt=0, description="Most output a build or measurement may print.")
    build_seconds: float = Field(1800.0, gt=0, description="Longest build of one commit.")
    hidden_paths: list[Path] = Field(
        [],
        description="Files and directories that code under test finds empty, as JSON, beside the usual ones of a home.",
    )
    lock_dir: Path = Field(
        Path("/run/lock"),
        description="Where the locks of this host's GPUs lie; the same for all workers that share a GPU.",
    )
    stop_seconds: float = Field(
        0.0,
        ge=0,
        description="How long a measurement may go on once the worker is told to stop; then it is handed back.",
    )
    allow_unsandboxed: bool = Field(
        False, description="Whether code under test is run where this host can make no sandbox; the pages say so."
    )
    private_repositories: bool = Field(
        False, description="Whether commits may be fetched from private networks, and from http:// and file://."
    )
    kept_builds: int = Field(50, ge=2, description="Builds that are kept; older ones unused for a week are removed.")
    log_format: Literal["text", "json"] = Field("text", description="Lines of text, or a JSON object for each record.")
    boot_id: str = Field(
        default_factory=lambda: uuid.uuid4().hex,
        description="Which start of the process this is; set by the worker itself.",
    )

    @model_validator(mode="after")
    def _look_at_the_device(self) -> Settings:
        gpu = _gpu_name() if self.device != "cpu" else None
        self.device = self.device or ("cuda" if gpu else "cpu")
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device must be cpu or cuda, not {self.device!r}")
        if self.device == "cuda" and gpu is None:
            raise ValueError("device is cuda, but `nvidia-smi` finds no GPU")
        self.device_name = self.device_name or gpu or _cpu_name()
        slug = "".join(sign if sign.isalnum() else "-" for sign in (gpu or "").lower().removeprefix("nvidia ")).strip(
            "-"
        )
        self.hardware = self.hardware or slug or "cpu"
        return self

    def hidden(self) -> tuple[Path, ...]:
        """What code under test must not see: the configured paths, and where people keep credentials."""
        secrets = secrets_directory()
        return (*self.hidden_paths, *([secrets] if secrets else []), *(Path.home() / name for name in CREDENTIALS))


def secrets_directory() -> Path | None:
    """Where settings may lie as files, named as their variables in small letters: systemd's credentials, else where
    container engines mount secrets. A variable goes before a file."""
    named = os.environ.get("CREDENTIALS_DIRECTORY")
    directory = Path(named) if named else Path("/run/secrets")
    return directory if directory.is_dir() else None


def load_settings() -> Settings:
    """Reads the settings.

    Raises:
        ConfigurationError: a variable is missing or wrong; the message names it.
    """
    try:
        return Settings(_secrets_dir=secrets_directory())
    except ValidationError as error:
        first = error.errors()[0]
        variable = (
            "GPROJCI_" + "_".join(str(part) for part in first["loc"]).upper() if first["loc"] else "GPROJCI_DEVICE"
        )
        reason = "is not set" if first["type"] == "missing" else first["msg"]
        raise ConfigurationError(f"{variable}: {reason}") from error


def _gpu_name() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    names = answer.stdout.strip().splitlines()
    return names[0].strip() if answer.returncode == 0 and names else None


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.processor() or platform.machine()} ({os.cpu_count()} CPUs)"
