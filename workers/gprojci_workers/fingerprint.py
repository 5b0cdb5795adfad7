"""One hash of everything that a measurement depends on: where it is equal, measuring again would tell nothing new."""

from __future__ import annotations

import hashlib
import json
import subprocess
from functools import cache
from pathlib import Path

from gprojci_suite.contract import RunSpec
from gprojci_workers import nvidia_smi
from gprojci_workers.build import ruler_facts
from gprojci_workers.settings import Settings

_RULER = "from gprojci_suite.identity import ruler; print(ruler().revision)"
# Which commits these are, and where their builds lie on this host, does not matter: the builds' keys stand for them.
_OF_THE_COMMIT = ("commit", "python", "site", "build_seconds")


def fingerprint(settings: Settings, spec: RunSpec, input_hashes: dict[str, str]) -> str:
    """SHA-256 in hex of spec, builds, inputs, ruler, packages, device and driver.

    Args:
        input_hashes: content hashes of the input sets that the ruler does not bundle, by name.
    """
    told = spec.to_json()
    told["subjects"] = [
        {name: value for name, value in subject.items() if name not in _OF_THE_COMMIT} for subject in told["subjects"]
    ]
    told |= {"input_directory": None, "limits": None}  # what is left of the hard limit differs each time
    facts = ruler_facts(settings.ruler_python)
    whole = {
        "spec": told,
        "inputs": input_hashes,
        "ruler": _ruler_revision(settings.ruler_python),
        "packages": facts["packages"],
        "python": facts["python"],
        "hardware": settings.hardware,
        "device": settings.device_name,
        "driver": _driver(settings.device),
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


@cache
def _ruler_revision(python: Path) -> str:
    done = subprocess.run([python, "-P", "-c", _RULER], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip()


@cache
def _driver(device: str) -> str:
    if device != "cuda":
        return ""
    return nvidia_smi.query("driver_version")
