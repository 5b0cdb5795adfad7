"""Assembles the list of workers: who is here and what they do, filtered, searched, sorted and paged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from gprojci_service.models import now
from gprojci_service.pages import repository
from gprojci_service.pages.addresses import address
from gprojci_service.pages.scatter import pick
from gprojci_service.pages.schemas import WorkerView
from gprojci_service.settings import Settings

PAGE = 50
AWAY_AFTER_HEARTBEATS = 6
STATES = {"": "all", "busy": "busy", "idle": "idle", "away": "away", "drained": "drained"}
SORTS = {"here": "who is here first", "name": "by name", "seen": "last heard of first"}
_DEFAULT = {"sort": "here"}


@dataclass(frozen=True)
class WorkersView:
    """The list; `address` makes the address of another choice."""

    rows: tuple[WorkerView, ...]
    state: str
    states: tuple[tuple[str, str, int], ...]
    hardware: str
    hardwares: dict[str, str]
    """Hardware classes, each as it reads."""
    text: str
    sort: str
    sorts: dict[str, str]
    unsandboxed: bool
    """Whether any worker, shown or not, runs code under test without a sandbox."""
    known: bool
    """Whether any worker ever said hello."""
    address: Callable[..., str]
    here: str
    """Address of what is shown, page and all."""
    newer: str | None
    older: str | None


def workers(session: Session, settings: Settings, choices: Mapping[str, str], page: int) -> WorkersView:
    """The list, by what the address chooses: state, hardware, q (part of the name or the device) and sort."""
    known = all_workers(session, settings)
    classes = ["", *sorted({row.worker.hardware for row in known})]
    state, hardware = pick(choices.get("state"), list(STATES)), pick(choices.get("hardware"), classes)
    sort, text = pick(choices.get("sort"), list(SORTS)), choices.get("q", "").strip().lower()[:100]
    rows = [row for row in known if hardware in ("", row.worker.hardware) and text in _words(row)]
    shown = [row for row in rows if _is(row, state)]
    if sort == "name":
        shown.sort(key=lambda row: row.worker.name)
    elif sort == "seen":
        shown.sort(key=lambda row: row.worker.last_seen_at, reverse=True)
    chosen = {"state": state, "hardware": hardware, "q": text, "sort": sort}
    return WorkersView(
        rows=tuple(shown[(page - 1) * PAGE : page * PAGE]),
        state=state,
        states=tuple((key, words, sum(_is(row, key) for row in rows)) for key, words in STATES.items()),
        hardware=hardware,
        hardwares={"": "all classes"} | {name: name for name in classes if name},
        text=text,
        sort=sort,
        sorts=SORTS,
        unsandboxed=any(row.unsandboxed for row in known),
        known=bool(known),
        address=lambda **other: address("/workers", chosen | other, default=_DEFAULT),
        here=address("/workers", chosen, page, default=_DEFAULT),
        newer=address("/workers", chosen, page - 1, default=_DEFAULT) if page > 1 else None,
        older=address("/workers", chosen, page + 1, default=_DEFAULT) if len(shown) > page * PAGE else None,
    )


def all_workers(session: Session, settings: Settings) -> tuple[WorkerView, ...]:
    """Every worker, who is here before who is away, then by name."""
    away = now() - timedelta(seconds=max(settings.heartbeat_seconds * AWAY_AFTER_HEARTBEATS, settings.lease_seconds))
    views = []
    for worker, attempt in repository.workers(session):
        state = "busy" if attempt else "away" if worker.last_seen_at < away else "idle"
        packages = {key: value for key, value in worker.environment.items() if isinstance(value, str)}
        software = ", ".join(
            f"{key} {packages[key]}" for key in ("python", "torch", "cuda", "driver") if packages.get(key)
        )
        views.append(WorkerView(worker, attempt, state, software, worker.environment.get("sandboxed") is False))
    return tuple(sorted(views, key=lambda view: (view.state == "away", view.worker.name)))


def _is(row: WorkerView, state: str) -> bool:
    """Whether a worker belongs under a key of `STATES`; a drained one is also busy, idle or away."""
    return row.worker.draining_at is not None if state == "drained" else state in ("", row.state)


def _words(row: WorkerView) -> str:
    return f"{row.worker.name} {row.worker.device_name}".lower()
