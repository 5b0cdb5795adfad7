"""What differs between the environments of two sessions: a number may move with the machine, not with the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.models import Job
from gprojci_service.pages import repository
from gprojci_service.pages.formatting import DASH, clean, memory
from gprojci_suite.contract.codec import encode
from gprojci_suite.contract.report import Report

_FACTS = {
    "device_name": "Device",
    "hardware": "Hardware class",
    "platform": "Platform",
    "python": "Python",
    "torch": "torch",
    "cuda": "CUDA",
    "driver": "Driver",
    "cpu_count": "CPUs",
    "threads": "Threads",
    "memory_bytes": "Memory",
    "network": "Network",
}


@dataclass(frozen=True)
class FactChange:
    """A fact with what it was and what it is."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class EnvironmentChanges:
    """What a session differs in from another, which job `job_id` had; `facts` is empty where it differs in nothing."""

    job_id: int
    facts: tuple[FactChange, ...]


def of_job(session: Session, job: Job, report: Report) -> EnvironmentChanges | None:
    """Against the newest session of the base commit as a head on this hardware; None where there is none."""
    if job.merge_base_sha is None:
        return None
    found = repository.newest_session_of(session, job.project_id, job.merge_base_sha, job.hardware, other_than=job.id)
    return None if found is None else EnvironmentChanges(found.job_id, between(found.facts, facts_of(report)))


def facts_of(report: Report) -> dict[str, Any]:
    """The facts of a report that are compared, as its JSON has them."""
    return {"environment": encode(report.environment), "ruler": encode(report.ruler)}


def between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FactChange, ...]:
    """What differs, from `facts_of` one session to that of another."""
    rows = []
    was, now = before["environment"], after["environment"]
    for key, name in _FACTS.items():
        rows.append((name, _shown(key, was.get(key)), _shown(key, now.get(key))))
    packages = sorted({*was["packages"], *now["packages"]} - {"torch"})
    rows += [(name, _shown("", was["packages"].get(name)), _shown("", now["packages"].get(name))) for name in packages]
    rows.append(("Ruler", _ruler(before["ruler"]), _ruler(after["ruler"])))
    return tuple(FactChange(clean(name), clean(old), clean(new)) for name, old, new in rows if old != new)


def _ruler(facts: Mapping[str, Any]) -> str:
    return f"{facts['version']} at {facts['revision'][:16]}"


def _shown(key: str, value: Any) -> str:
    return DASH if value is None else memory(value) if key == "memory_bytes" else str(value)
