"""What the templates are given: small frozen records of things already worded and formatted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from markupsafe import Markup

from gprojci_service.jobs.usage import Usage
from gprojci_service.models import (
    Attempt,
    Build,
    Commit,
    GithubReport,
    ImportedReport,
    Project,
    Verdict,
    Worker,
)
from gprojci_service.pages.environment_changes import EnvironmentChanges, FactChange
from gprojci_service.pages.repository import JobRow
from gprojci_service.results.comparison import Change


def _of_words(texts: Iterable[str]) -> bool:
    """Whether a column holds words, which stand on the left, and no number."""
    found = False
    for text in texts:
        first = text[:1]
        if first.isdigit() or first in ("+", "−", "±", "∞"):
            return False
        found = found or first.isalpha()
    return found


@dataclass(frozen=True)
class Table:
    """A table of texts; the first cell of a row is its header."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    links: tuple[str, ...] = ()
    """Where the header of each row leads, if anywhere."""

    @cached_property
    def wordy(self) -> tuple[bool, ...]:
        """Of each column, whether it holds words; the first does."""
        places = range(1, len(self.columns))
        return (True, *(_of_words(row[place] for row in self.rows if place < len(row)) for place in places))


@dataclass(frozen=True)
class Drawing:
    """A chart ready for the page: plotly JSON, and the same numbers as a table."""

    key: str
    title: str
    caption: str
    json: Markup
    table: Table
    data: Any = None
    """What the chart was drawn from."""
    wide: str = ""
    """`is-wide` or `is-wider` where it needs about 700 or 1,100 pixels and scrolls in its box where there are fewer."""


class FindingView(NamedTuple):
    """One line of the gate's evidence in words."""

    verdict: str
    check: str
    label: str
    backend: str
    where: str
    value: str
    limit: str
    interval: str
    text: str
    sentence: str
    informative: bool
    line: int | None
    """Line of the manifest that sets the limit."""
    accepted: str = ""
    """By whom it was accepted, and why."""


@dataclass(frozen=True)
class Scatter:
    """The accuracy-against-speed picture with every choice it can be given."""

    job_id: int
    drawing: Drawing
    project: str
    projects: tuple[str, ...]
    input: str
    inputs: tuple[str, ...]
    metric: str
    metrics: tuple[str, ...]
    metric_words: dict[str, str]
    time: str
    times: tuple[str, ...]
    time_words: dict[str, str]
    case: str
    cases: tuple[str, ...]
    hardware: str
    hardwares: tuple[str, ...]


@dataclass(frozen=True)
class WorkerView:
    """A worker with what it does now; state is busy, idle or away."""

    worker: Worker
    attempt: Attempt | None
    state: str
    software: str
    unsandboxed: bool
    """Whether it runs code under test although its host can make no sandbox."""


@dataclass(frozen=True)
class ProjectView:
    """A project's page."""

    project: Project
    pull_requests: tuple[JobRow, ...]
    jobs: tuple[JobRow, ...]
    refs: tuple[str, ...]
    ref: str
    ref_words: dict[str, str]
    scatter: Scatter | None
    older: str | None


@dataclass(frozen=True)
class HistoryView:
    """One metric over commits."""

    project: Project
    metric: str
    metrics: tuple[str, ...]
    metric_words: dict[str, str]
    case: str
    cases: tuple[str, ...]
    hardware: str
    hardwares: tuple[str, ...]
    ruler: str
    rulers: tuple[str, ...]
    ruler_words: dict[str, str]
    span: str
    spans: tuple[str, ...]
    span_words: dict[str, str]
    ref: str
    refs: tuple[str, ...]
    ref_words: dict[str, str]
    backends: tuple[str, ...]
    chosen: tuple[str, ...]
    drawing: Drawing | None


@dataclass(frozen=True)
class Side:
    """One of two compared commits, and the job its values come from."""

    name: str
    commit: Commit
    job_id: int
    verdict: Verdict | None

    @property
    def accepted(self) -> tuple[tuple[str, str], ...]:
        """Limits that somebody accepted for the commit: key, by whom and why."""
        rows = self.verdict.evidence if self.verdict is not None else []
        return tuple(dict.fromkeys((row["limit_key"], row["accepted"]) for row in rows if row.get("accepted")))


@dataclass(frozen=True)
class CompareView:
    """Two commits beside each other."""

    project: Project
    base_text: str
    head_text: str
    commits: tuple[Commit, ...]
    recent: tuple[JobRow, ...] = ()
    problem: str = ""
    wrong: str = ""
    """The field that the problem is about: base or head."""
    sides: tuple[Side, ...] = ()
    same_session: bool = False
    warning: str = ""
    rows: tuple[Change, ...] = ()
    changed_words: str = ""
    drawings: tuple[Drawing, ...] = ()
    inputs: tuple[str, ...] = ()
    input: str = ""
    tensor: str = "dq"
    backends: tuple[str, ...] = ()
    backend: str = ""
    environment: tuple[FactChange, ...] = ()
    """What the session of the head differs in from the base's, where there are two."""


@dataclass(frozen=True)
class Banner:
    """The sentence at the top of a job."""

    kind: str
    icon: str
    title: str
    text: str = ""


@dataclass(frozen=True)
class StepView:
    """One step of an attempt."""

    name: str
    kind: str
    icon: str
    words: str


class LogLine(NamedTuple):
    """One line of a log; number counts from 1 over the whole log."""

    number: int
    text: str


@dataclass(frozen=True)
class LogView:
    """The lines shown of a log, and what is said about them."""

    lines: tuple[LogLine, ...]
    words: str


class Cell(NamedTuple):
    """A formatted value, whether it is over the limit, more about it on hover, and a second line under it."""

    text: str
    over: bool = False
    more: str = ""
    sub: str = ""


class SliceRow(NamedTuple):
    """One slice over all backends."""

    slice: str
    vanishing: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class AccuracyView:
    """Errors of one tensor on one input set."""

    inputs: tuple[str, ...]
    input: str
    tensor: str
    words: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[SliceRow, ...]
    heatmap: Drawing


@dataclass(frozen=True)
class Choice:
    """A select of a report's page: the field's name, its options in words, what is chosen."""

    name: str
    label: str
    options: tuple[str, ...]
    chosen: str
    words: dict[str, str]


@dataclass(frozen=True)
class Fold:
    """A table that opens on a click; `words` say what matters of it before, `warns` whether that is a warning."""

    words: str
    table: Table
    warns: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a report: what can be chosen, a chart and a table of cells, each where there is one.

    The first column of the table names the row; `columns` begin with its title.
    """

    key: str
    title: str
    words: str
    choices: tuple[Choice, ...] = ()
    drawing: Drawing | None = None
    caption: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    note: str = ""
    folds: tuple[Fold, ...] = ()

    @cached_property
    def wordy(self) -> tuple[bool, ...]:
        """Of each column, whether it holds words; the first does."""
        places = range(1, len(self.columns))
        return (True, *(_of_words(row[place].text for row in self.rows) for place in places))


@dataclass(frozen=True)
class FailedBackend:
    """A backend without a result, and why."""

    label: str
    status: str
    detail: str | None


@dataclass(frozen=True)
class ReportView:
    """Everything that a suite report says."""

    failed: tuple[FailedBackend, ...]
    repro: str
    accuracy: AccuracyView | None
    sections: tuple[Section, ...]
    environment: tuple[tuple[str, str], ...]
    gpu: Table | None
    slowed_by: str
    choices: dict[str, str]
    """What is chosen on the whole page: a form that changes one choice keeps the others."""

    @property
    def draws(self) -> bool:
        """Whether there is a chart."""
        return self.accuracy is not None or any(section.drawing for section in self.sections)


@dataclass(frozen=True)
class AttemptView:
    """An attempt with its worker's name."""

    attempt: Attempt
    worker: str


@dataclass(frozen=True)
class ToldView:
    """One message to GitHub."""

    kind: str
    phase: str
    state: str
    detail: str | None
    says: str
    sent_at: datetime | None
    created_at: datetime

    @classmethod
    def of(cls, row: GithubReport) -> ToldView:
        """Reads what the message says out of its payload."""
        output: Any = row.payload.get("output")
        says = row.payload.get("description") or (output.get("title") if isinstance(output, dict) else None) or ""
        return cls(row.kind, row.phase, row.state, row.detail, str(says), row.sent_at, row.created_at)


@dataclass(frozen=True)
class JobView:
    """A job's page; `report` is None until there is one."""

    row: JobRow
    live: bool
    base_sha: str | None
    banner: Banner | None
    reasons: tuple[FindingView, ...]
    steps: tuple[StepView, ...]
    log: LogView | None
    findings: tuple[FindingView, ...] = ()
    acceptable: tuple[str, ...] = ()
    """Findings that somebody may accept: backend/limit key."""
    policy_words: str = ""
    report: ReportView | None = None
    thinned_at: datetime | None = None
    """When the report's single values were removed."""
    told: tuple[ToldView, ...] = ()
    builds: tuple[Build, ...] = ()
    attempts: tuple[AttemptView, ...] = ()
    usage: Usage | None = None
    taken_from_job: int | None = None
    """The job whose measurement this one took over."""
    changes: EnvironmentChanges | None = None
    """What the session differs in from one of the base commit, where there was one."""

    @property
    def held(self) -> list[FindingView]:
        """Findings of limits that hold."""
        return [finding for finding in self.findings if finding.verdict == "pass"]

    @property
    def not_held(self) -> list[FindingView]:
        """All other findings."""
        return [finding for finding in self.findings if finding.verdict != "pass"]


@dataclass(frozen=True)
class ImportedView:
    """An imported report's page."""

    row: ImportedReport
    measured: datetime
    report: ReportView


@dataclass(frozen=True)
class ImportedListView:
    """The list of imported reports."""

    rows: tuple[ImportedReport, ...]
    known: bool
    """Whether there is any."""
    hardware: str
    hardwares: dict[str, str]
    """Hardware classes, each as it reads."""
    text: str
    sort: str
    sorts: dict[str, str]
    newer: str | None
    older: str | None


@dataclass(frozen=True)
class Failing:
    """A backend over the limit on an input set."""

    backend: str
    words: str


@dataclass(frozen=True)
class InputView:
    """One input set."""

    key: str
    name: str
    hardness: float
    """Largest offset of the keys over their spread; zero while nobody has computed it."""
    uploaded: bool
    bundled: bool
    tiles: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    last_used: datetime | None
    """By a report; None while none named it."""
    provenance: Table | None
    training: Drawing | None
    captured_by: tuple[tuple[str, str], ...]
    """Training runs that wrote it, in words, and where they are shown."""
    judged: bool
    failing: tuple[Failing, ...]
    errors: Table | None
    slices: Table | None


@dataclass(frozen=True)
class InputsView:
    """All input sets."""

    inputs: tuple[InputView, ...] = field(default_factory=tuple)
