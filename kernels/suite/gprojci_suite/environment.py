"""Facts about the machine and its software."""

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

import torch

from gprojci_suite.contract.report import Environment, GpuSample
from gprojci_suite.contract.vocabulary import Device, Network
from gprojci_suite.process import available_threads

PACKAGES = (
    "torch",
    "numpy",
    "safetensors",
    "scipy",
    "triton",
    "flash-attn",
    "flash-attn-3",
    "flash-attn-4",
    "xformers",
    "nvidia-cutlass-dsl",
    "nvidia-cudnn-cu13",
)
NETWORK_VARIABLE = "GPROJCI_NETWORK"
"""Says whether the run had a network: `isolated` or `shared`; set by the worker's sandbox."""


class EnvironmentFault(RuntimeError):
    """The machine or its settings do not allow the run; the message says what to do."""


def describe(device: Device, samples: tuple[GpuSample, ...] | None = None) -> Environment:
    """The environment of this process; raises EnvironmentFault for a CUDA device that is not there."""
    name = torch.cuda.get_device_name() if device == "cuda" else _cpu_name()
    clocks = _clocks() if device == "cuda" else None
    return Environment(
        device=device,
        device_name=name,
        hardware=hardware_class(device),
        platform=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        driver=_smi("driver_version") if device == "cuda" else None,
        cpu_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=available_threads(),
        memory_bytes=_memory(device),
        packages=_packages(),
        clocks=clocks,
        throttle_reasons=_throttle_reasons() if device == "cuda" else (),
        network=_network(),
        samples=samples,
    )


def check_device(device: Device) -> None:
    """Raise EnvironmentFault when torch cannot use `device`."""
    if device == "cuda" and not torch.cuda.is_available():
        raise EnvironmentFault(
            "torch sees no CUDA device; use --device cpu, or install a CUDA build of torch and a driver"
        )


def hardware_class(device: Device) -> str:
    """Slug of the hardware class: `cpu-x86-64`, `h200`."""
    if device == "cpu":
        return f"cpu-{_slug(platform.machine())}"
    return _slug(re.sub(r"^NVIDIA\s+", "", torch.cuda.get_device_name()))


def gpu() -> str:
    """UUID of torch's first GPU, by which nvidia-smi knows it whatever CUDA_VISIBLE_DEVICES hides."""
    return f"GPU-{torch.cuda.get_device_properties(0).uuid}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return match[1].strip() if match else platform.processor() or platform.machine()


def _memory(device: Device) -> int:
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _network() -> Network:
    value = os.environ.get(NETWORK_VARIABLE, "unknown")
    if value not in ("isolated", "shared", "unknown"):
        raise EnvironmentFault(f"{NETWORK_VARIABLE} must be isolated, shared or unknown, got {value!r}")
    return value  # type: ignore[return-value]


def _smi(field: str) -> str | None:
    """One field of nvidia-smi for the first GPU, or None where the tool or the field is missing."""
    command = ["nvidia-smi", f"--id={gpu()}", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def _clocks() -> dict[str, float]:
    found = {}
    for name in ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem"):
        value = _smi(name)
        if value and re.fullmatch(r"\d+(\.\d+)?", value):
            found[name] = float(value)
    return found


def _throttle_reasons() -> tuple[str, ...]:
    reasons = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown", "sw_power_cap")
    return tuple(name for name in reasons if _smi(f"clocks_throttle_reasons.{name}") == "Active")
