"""The manifest `gprojci.toml` of a repository under test: what to build, measure and demand."""

import dataclasses
import difflib
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gprojci_suite.contract.errors import ManifestError
from gprojci_suite.contract.vocabulary import DEVICES, MAX_PROCESSES, STEP_MODELS, TENSORS

GATE_LIMITS: Mapping[str, str] = {
    **{f"{t}_error_ceiling": f"median relative error of {t} over slices that do not vanish" for t in TENSORS},
    **{f"{t}_worst_ceiling": f"relative error of {t} in the worst slice that does not vanish" for t in TENSORS},
    **{f"{t}_error_ratio": f"median relative error of {t}, head over base" for t in TENSORS},
    "dq_symmetry_ceiling": "median response of dq to a shift of all keys, over its norm",
    "kernel_time_increase": "forward and backward time, head over base, minus one",
    "kernel_overhead_ceiling": "forward and backward time, head over anchor, minus one",
    "step_overhead_increase": "training step time, head over base, minus one",
    "step_overhead_ceiling": "training step time, head over anchor, minus one",
}
"""Every limit a gate can set, with the quantity it bounds."""

ASSIGNMENT = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
SHAPE = re.compile(r"[1-9]\d*(x[1-9]\d*){3}")


@dataclass(frozen=True)
class Build:
    """How the commit is built."""

    path: str = "."
    """Directory, relative to the repository's root, that pip can install."""
    extras: tuple[str, ...] = ()
    """Extras to install with it."""
    isolation: bool = False
    """Whether pip builds it in an isolated build environment."""


@dataclass(frozen=True)
class BackendEntry:
    """One attention implementation of the repository."""

    entry: str
    """`module:callable` taking (q, k, v, *, causal, softmax_scale)."""


@dataclass(frozen=True)
class AccuracySettings:
    """What the accuracy suite measures."""

    inputs: tuple[str, ...] = ()
    """Input sets."""
    peers: tuple[str, ...] = ()
    """Peers measured beside the backends."""
    surface: bool = False
    """Whether the sweep over synthetic offsets and logits is measured too."""
    symmetry: bool = False
    """Whether the responses to shifts of keys and values are measured too."""
    determinism: bool = False
    """Whether bitwise repeatability is measured too."""
    shapes: tuple[str, ...] = ()
    """Shapes `batch x heads x sequence x head_dim` that symmetry and determinism take beside the inputs."""
    repeats: int = 5
    """How often determinism computes each case."""


@dataclass(frozen=True)
class ThroughputSettings:
    """What the throughput suite measures."""

    anchor: str | None = None
    """Peer that every timing is divided by."""
    shapes: tuple[str, ...] = ()
    """Shapes `batch x heads x sequence x head_dim`, or names of input sets."""
    pairs: int = 20
    """Interleaved pairs measured first."""
    max_pairs: int = 80
    """Most pairs measured when the interval does not decide."""
    peers: tuple[str, ...] = ()
    """Peers timed beside the backends."""
    step_models: tuple[str, ...] = ()
    """Models whose training step is timed."""
    processes: int | None = None
    """Processes of each compared backend that the pairs are spread over; null means 1 on a CPU and 5 on CUDA."""


@dataclass(frozen=True)
class GateSettings:
    """What a head commit must satisfy; a missing limit is not gated."""

    limits: Mapping[str, float] = field(default_factory=dict)
    """Limit by key of GATE_LIMITS."""
    informative: tuple[str, ...] = ()
    """Limits that are reported but do not decide."""
    backends: tuple[str, ...] | None = None
    """Backends gated; null means all of the manifest."""
    inputs: tuple[str, ...] | None = None
    """Input sets gated; null means all that were measured."""


@dataclass(frozen=True)
class Manifest:
    """A whole manifest as it holds on one kind of device."""

    backends: Mapping[str, BackendEntry]
    """Backends by name."""
    build: Build = field(default_factory=Build)
    """How the commit is built."""
    accuracy: AccuracySettings = field(default_factory=AccuracySettings)
    """What the accuracy suite measures."""
    throughput: ThroughputSettings = field(default_factory=ThroughputSettings)
    """What the throughput suite measures."""
    gate: GateSettings = field(default_factory=GateSettings)
    """What is demanded."""


def parse(text: str, *, device: str) -> Manifest:
    """Read a manifest as it holds on `device` ("cpu" or "cuda"): `[gate.cpu]` overrides keys of `[gate]` there.

    The settings of the other kinds of device are checked as well.

    Raises:
        ManifestError: naming the key, its line, and for an unknown key the closest known one.
        ValueError: for an unknown device kind, which is the caller's mistake.
    """
    if device not in DEVICES:
        raise ValueError(f"unknown device kind {device!r}")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+), column \d+\)", str(error))
        raise ManifestError(f"not TOML: {error}", int(match[1]) if match else None) from error
    return {kind: _read(text, document, kind) for kind in DEVICES}[device]


def _read(text: str, document: Mapping[str, Any], device: str) -> Manifest:
    reader = _Reader(text)
    reader.known((), document, ["build", "backends", "accuracy", "throughput", "gate"])
    sections: dict[str, Any] = {"build": Build(**reader.settings(("build",), document, Build, None))}
    kinds = {"accuracy": AccuracySettings, "throughput": ThroughputSettings}
    for name, kind in kinds.items():
        sections[name] = kind(**reader.settings((name,), document, kind, device))
    sections["gate"] = reader.gate(document, device)
    backends = reader.backends(document)
    manifest = Manifest(backends=backends, **sections)
    reader.consistent(manifest)
    return manifest


class _Reader:
    """Checks the parsed document and finds the line of whatever is wrong in it."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()

    def fail(self, path: tuple[str, ...], problem: str) -> typing.NoReturn:
        raise ManifestError(f"{'.'.join(path)}: {problem}", self.line(path))

    def line(self, path: tuple[str, ...]) -> int | None:
        """Line of a key: the most exact match of its dotted path among headers and assignments."""
        table: tuple[str, ...] = ()
        found: dict[tuple[str, ...], int] = {}
        for number, line in enumerate(self.lines, 1):
            header = re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", line)
            assignment = ASSIGNMENT.match(line)
            if header:
                table = _dotted(header[1])
                found.setdefault(table, number)
            elif assignment:
                found.setdefault(table + _dotted(assignment[1]), number)
        for known, number in found.items():
            if known[: len(path)] == path:
                return number
        return self.line(path[:-1]) if path else None

    def known(self, path: tuple[str, ...], table: Mapping[str, Any], names: Iterable[str]) -> None:
        names = list(names)
        for key in table:
            if key not in names:
                close = difflib.get_close_matches(key, names, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(sorted(names))}"
                self.fail((*path, key), f"unknown key; {hint}")

    def table(self, path: tuple[str, ...], parent: Mapping[str, Any]) -> dict[str, Any]:
        value = parent.get(path[-1], {})
        if not isinstance(value, dict):
            self.fail(path, "must be a table")
        return value

    def merged(self, path: tuple[str, ...], document: Mapping[str, Any], names: list[str], device: str | None) -> Any:
        """Pairs of (path, value) of one section with the device's overrides laid over it."""
        section = self.table(path, document)
        kinds: list[str] = list(DEVICES) if device is not None else []
        self.known(path, section, names + kinds)
        values = {key: ((*path, key), value) for key, value in section.items() if key not in kinds}
        for kind in kinds:
            override = self.table((*path, kind), section)
            self.known((*path, kind), override, names)
            if kind == device:
                values |= {key: ((*path, kind, key), value) for key, value in override.items()}
        return values

    def settings(
        self, path: tuple[str, ...], document: Mapping[str, Any], kind: type, device: str | None
    ) -> dict[str, Any]:
        hints = typing.get_type_hints(kind)
        values = self.merged(path, document, [item.name for item in dataclasses.fields(kind)], device)
        return {key: self.typed(where, value, hints[key]) for key, (where, value) in values.items()}

    def typed(self, path: tuple[str, ...], value: Any, hint: Any) -> Any:
        kinds = typing.get_args(hint) if type(None) in typing.get_args(hint) else (hint,)
        if any(typing.get_origin(kind) is tuple for kind in kinds):
            return self.strings(path, value)
        if bool in kinds and not isinstance(value, bool):
            self.fail(path, "must be true or false")
        if int in kinds and (isinstance(value, bool) or not isinstance(value, int)):
            self.fail(path, "must be an integer")
        if str in kinds and (not isinstance(value, str) or not value):
            self.fail(path, "must be a non-empty string")
        return value

    def strings(self, path: tuple[str, ...], value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            self.fail(path, "must be a list of non-empty strings")
        if len(set(value)) != len(value):
            self.fail(path, "lists something twice")
        return tuple(value)

    def backends(self, document: Mapping[str, Any]) -> dict[str, BackendEntry]:
        table = self.table(("backends",), document)
        if not table:
            raise ManifestError("backends: at least one [backends.NAME] is needed", self.line(("backends",)))
        result = {}
        for name in table:
            path = ("backends", name)
            if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
                self.fail(path, "a name has lower-case letters, digits, '.', '_' and '-' only")
            entry = self.table(path, table)
            self.known(path, entry, ["entry"])
            if "entry" not in entry:
                self.fail(path, "entry is missing")
            value = entry["entry"]
            if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", value):
                self.fail((*path, "entry"), "must have the form module:callable")
            result[name] = BackendEntry(value)
        return result

    def gate(self, document: Mapping[str, Any], device: str) -> GateSettings:
        lists = ("informative", "backends", "inputs")
        values = self.merged(("gate",), document, [*GATE_LIMITS, *lists], device)
        settings: dict[str, Any] = {"limits": {}}
        for key, (path, value) in values.items():
            if key in lists:
                settings[key] = self.strings(path, value)
                if key == "informative":
                    self.known(path, dict.fromkeys(settings[key]), GATE_LIMITS)
            elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                self.fail(path, "must be a finite number, zero or above")
            else:
                settings["limits"][key] = float(value)
        return GateSettings(**settings)

    def consistent(self, manifest: Manifest) -> None:
        """Check what no single key can show."""
        build = manifest.build
        if build.path.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", build.path):
            self.fail(("build", "path"), "must stay inside the repository")
        timing = manifest.throughput
        if timing.pairs < 2:
            self.fail(("throughput", "pairs"), "must be at least 2")
        if timing.max_pairs < timing.pairs:
            self.fail(("throughput", "max_pairs"), "must not be below pairs")
        if timing.processes is not None and not 1 <= timing.processes <= min(MAX_PROCESSES, timing.pairs):
            self.fail(("throughput", "processes"), f"must lie between 1 and {MAX_PROCESSES}, and not above pairs")
        self.known(("throughput", "step_models"), dict.fromkeys(timing.step_models), STEP_MODELS)
        if manifest.accuracy.repeats < 2:
            self.fail(("accuracy", "repeats"), "must be at least 2")
        for section, shapes in (("accuracy", manifest.accuracy.shapes), ("throughput", timing.shapes)):
            for shape in shapes:
                # Times are also taken on input sets, whose names look different.
                if not SHAPE.fullmatch(shape) and (section == "accuracy" or re.match(r"\d+x", shape)):
                    self.fail((section, "shapes"), f"{shape!r} is not of the form batch x heads x sequence x head_dim")
        if "dq_symmetry_ceiling" in manifest.gate.limits and not manifest.accuracy.symmetry:
            self.fail(("gate", "dq_symmetry_ceiling"), "needs symmetry = true under [accuracy]")
        for name in manifest.gate.backends or ():
            if name not in manifest.backends:
                self.known(("gate", "backends"), {name: None}, manifest.backends)


def _dotted(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in re.findall(r""""[^"]*"|'[^']*'|[^.]+""", text))
