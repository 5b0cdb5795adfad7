"""Reads the manifest `gprojci.toml` of a repository under test, and says of everything wrong in it where it stands."""

import dataclasses
import difflib
import re
import tomllib
import typing
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from gprojci_suite.contract.errors import ManifestError, Problem
from gprojci_suite.contract.manifest_settings import (
    GATE_LIMITS,
    AccuracySettings,
    BackendEntry,
    Build,
    GateRule,
    GateSettings,
    Manifest,
    ThroughputSettings,
)
from gprojci_suite.contract.toml_positions import Path, positions
from gprojci_suite.contract.vocabulary import DEVICES, MAX_PROCESSES, STEP_MODELS

__all__ = [
    "GATE_LIMITS",
    "RULE_FILTERS",
    "AccuracySettings",
    "BackendEntry",
    "Build",
    "GateRule",
    "GateSettings",
    "Manifest",
    "ThroughputSettings",
    "parse",
]

SHAPE = re.compile(r"[1-9]\d*(x[1-9]\d*){3}")
RULE_FILTERS = ("backends", "inputs", "shapes", "step_models", "hardware")
"""What a rule of the gate may be restricted to."""
# A manifest is a stranger's text: these keep the time that checking it takes short.
LONGEST = 65536
MOST_DOTS = 2000
"""The parser takes a time that grows with the square of a dotted key's parts: a minute, where a manifest is one key."""
MOST_ITEMS = 500
MOST_RULES = 100
MOST_PROBLEMS = 50


def parse(text: str, *, device: str) -> Manifest:
    """Read a manifest as it holds on `device` ("cpu" or "cuda"): `[gate.cpu]` overrides keys of `[gate]` there.

    The settings of the other kinds of device are checked as well.

    Raises:
        ManifestError: everything that is wrong, each with its key, line and column, and for an unknown name the closest
            known one.
        ValueError: for an unknown device kind, which is the caller's mistake.
    """
    if device not in DEVICES:
        raise ValueError(f"unknown device kind {device!r}")
    if len(text) > LONGEST:
        raise ManifestError([Problem(f"longer than {LONGEST} characters")])
    if text.count(".") > MOST_DOTS:
        raise ManifestError([Problem(f"more than {MOST_DOTS} dots")])
    try:
        document = tomllib.loads(text)
        reader = _Reader(document, positions(text))
    except tomllib.TOMLDecodeError as error:
        raise ManifestError([_not_toml(text, str(error))]) from error
    except RecursionError as error:
        raise ManifestError([Problem("not usable: lists or tables are nested too deeply")]) from error
    manifests: dict[str, Manifest] = {kind: reader.manifest(kind) for kind in DEVICES}
    reader.check_rules(manifests)
    if reader.problems:
        raise ManifestError(sorted(reader.problems, key=lambda found: (found.line or 0, found.column or 0)))
    return reader.with_rules(manifests[device])


def _not_toml(text: str, error: str) -> Problem:
    match = re.search(r" \(at line (\d+), column (\d+)\)", error)
    if match:
        return Problem(f"not TOML: {error.replace(match[0], '')}", int(match[1]), int(match[2]))
    return Problem(f"not TOML: {error}", max(1, len(text.splitlines())))


class _Wrong(Exception):
    """A value cannot be used; what is wrong with it is noted already."""


class _Reader:
    """Checks the parsed document and notes the place of whatever is wrong in it; what is wrong is left out."""

    def __init__(self, document: Mapping[str, Any], places: Mapping[Path, tuple[int, int]]) -> None:
        self.document = document
        self.places = places
        self.problems: list[Problem] = []

    def manifest(self, device: str) -> Manifest:
        self.known((), self.document, ("build", "backends", "accuracy", "throughput", "gate"))
        manifest = Manifest(
            backends=self.backends(),
            build=Build(**self.settings("build", Build, None)),
            accuracy=AccuracySettings(**self.settings("accuracy", AccuracySettings, device)),
            throughput=ThroughputSettings(**self.settings("throughput", ThroughputSettings, device)),
            gate=self.gate(device),
        )
        self.check_ranges(manifest)
        if not self.problems:  # what fits together is only seen where all of it is there
            self.check_together(manifest)
        return manifest

    def note(self, path: Path, problem: str) -> None:
        if len(self.problems) == MOST_PROBLEMS:
            return
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
        found = Problem(f"{name}: {problem}", *self.place(path))
        if found not in self.problems:
            self.problems.append(found)

    def wrong(self, path: Path, problem: str) -> typing.NoReturn:
        self.note(path, problem)
        raise _Wrong

    def place(self, path: Path) -> tuple[int | None, int | None]:
        """Line and column of a key or list item, else of the nearest thing around it that is there."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, (None, None))

    def known(self, path: Path, table: Iterable[str], names: Iterable[str], what: str = "key") -> list[str]:
        """Those of the table's keys that are known; of the others it is noted which may have been meant."""
        names = list(names)
        for key in table:
            if key not in names and len(self.problems) < MOST_PROBLEMS:
                self.note((*path, key), f"unknown {what}; {_meant(key, names)}")
        return [key for key in table if key in names]

    def items(self, path: Path, values: Iterable[str], names: Collection[str], what: str) -> None:
        """Notes the list items that are not among the names."""
        for index, value in enumerate(values):
            if value not in names and len(self.problems) < MOST_PROBLEMS:
                self.note((*path, index), f"{what} {value!r}; {_meant(value, names)}")

    def table(self, path: Path, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.note(path, "must be a table")
            return {}
        return value

    def section(self, name: str, keys: Iterable[str], device: str | None) -> dict[str, tuple[Path, Any]]:
        """Path and value of each key of a section, the device's overrides laid over it."""
        keys = list(keys)
        kinds: list[str] = list(DEVICES) if device is not None else []
        section = self.table((name,), self.document.get(name, {}))
        known = self.known((name,), section, keys + kinds)
        values: dict[str, tuple[Path, Any]] = {key: ((name, key), section[key]) for key in known if key not in kinds}
        for kind in kinds:
            override = self.table((name, kind), section.get(kind, {}))
            known = self.known((name, kind), override, keys)
            if kind == device:
                values |= {key: ((name, kind, key), override[key]) for key in known}
        return values

    def settings(self, name: str, kind: type, device: str | None) -> dict[str, Any]:
        hints = typing.get_type_hints(kind)
        values = self.section(name, [item.name for item in dataclasses.fields(kind)], device)
        return self.read_each(values, hints)

    def read_each(self, values: Mapping[str, tuple[Path, Any]], hints: Mapping[str, Any]) -> dict[str, Any]:
        """The values that have the right type."""
        read = {}
        for key, (path, value) in values.items():
            try:
                read[key] = self.typed(path, value, hints[key])
            except _Wrong:
                continue
        return read

    def typed(self, path: Path, value: Any, hint: Any) -> Any:
        kinds = typing.get_args(hint) if type(None) in typing.get_args(hint) else (hint,)
        if any(typing.get_origin(kind) is tuple for kind in kinds):
            return self.strings(path, value)
        if bool in kinds and not isinstance(value, bool):
            self.wrong(path, "must be true or false")
        if int in kinds and (isinstance(value, bool) or not isinstance(value, int)):
            self.wrong(path, "must be an integer")
        if str in kinds and (not isinstance(value, str) or not value):
            self.wrong(path, "must be a non-empty string")
        return value

    def strings(self, path: Path, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            self.wrong(path, "must be a list of non-empty strings")
        if len(value) > MOST_ITEMS:
            self.wrong(path, f"lists more than {MOST_ITEMS}")
        for index, item in enumerate(value):
            if item in value[:index]:
                self.wrong((*path, index), f"lists {item!r} twice")
        return tuple(value)

    def backends(self) -> dict[str, BackendEntry]:
        table = self.table(("backends",), self.document.get("backends", {}))
        if not table:
            self.note(("backends",), "at least one [backends.NAME] is needed")
        result = {}
        for name, value in table.items():
            try:
                result[name] = self.backend(("backends", name), name, value)
            except _Wrong:
                continue
        return result

    def backend(self, path: Path, name: str, value: Any) -> BackendEntry:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
            self.note(path, "a name has lower-case letters, digits, '.', '_' and '-' only")
        entry = self.table(path, value)
        known = self.known(path, entry, ["entry"])
        if not known:
            if not entry:
                self.note(path, "entry is missing")
            raise _Wrong
        target = entry["entry"]
        if not isinstance(target, str) or not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", target):
            self.wrong((*path, "entry"), "must have the form module:callable")
        return BackendEntry(target)

    def gate(self, device: str) -> GateSettings:
        lists = ("informative", "backends", "inputs")
        values = self.section("gate", [*GATE_LIMITS, *lists, "rules"], device)
        for kind in DEVICES:
            if ("gate", kind, "rules") in self.places:
                self.note(("gate", kind, "rules"), "rules stand in [[gate.rules]]; `hardware` restricts one")
        settings = self.read_each({key: value for key, value in values.items() if key in lists}, _STRINGS)
        path = values["informative"][0] if "informative" in values else ()
        self.items(path, settings.get("informative", ()), GATE_LIMITS, "unknown key")
        limits = self.limits(values)
        lines = {key: self.place(values[key][0])[0] or 1 for key in limits}
        rules = self.rules(values["rules"][1]) if "rules" in values else ()
        return GateSettings(**settings, limits=limits, lines=lines, rules=rules)

    def limits(self, values: Mapping[str, tuple[Path, Any]]) -> dict[str, float]:
        limits = {}
        for key, (path, value) in values.items():
            if key not in GATE_LIMITS:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                self.note(path, "must be a finite number, zero or above")
            else:
                limits[key] = float(value)
        return limits

    def rules(self, listed: Any) -> tuple[GateRule, ...]:
        if not isinstance(listed, list) or not all(isinstance(rule, dict) for rule in listed):
            self.note(("gate", "rules"), "must be a list of tables: [[gate.rules]]")
            return ()
        if len(listed) > MOST_RULES:
            self.note(("gate", "rules"), f"has more than {MOST_RULES} rules")
            return ()
        return tuple(self.rule(("gate", "rules", index), rule) for index, rule in enumerate(listed))

    def rule(self, path: Path, table: dict[str, Any]) -> GateRule:
        known = self.known(path, table, [*GATE_LIMITS, *RULE_FILTERS, "required"])
        values: dict[str, tuple[Path, Any]] = {key: ((*path, key), table[key]) for key in known}
        settings = {key: value for key, value in values.items() if key not in GATE_LIMITS}
        limits = self.limits(values)
        if not limits and "required" not in settings and len(known) == len(table):
            self.note(path, "a rule needs a limit, or `required`, or both")
        hints = typing.get_type_hints(GateRule)
        return GateRule(limits=limits, line=self.place(path)[0] or 1, **self.read_each(settings, hints))

    def check_ranges(self, manifest: Manifest) -> None:
        """Checks the values that have bounds."""
        build, accuracy, timing = manifest.build, manifest.accuracy, manifest.throughput
        if build.path.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", build.path):
            self.note(("build", "path"), "must stay inside the repository")
        if timing.pairs < 2:
            self.note(("throughput", "pairs"), "must be at least 2")
        if timing.max_pairs < timing.pairs:
            self.note(("throughput", "max_pairs"), "must not be below pairs")
        if timing.processes is not None and not 1 <= timing.processes <= min(MAX_PROCESSES, timing.pairs):
            self.note(("throughput", "processes"), f"must lie between 1 and {MAX_PROCESSES}, and not above pairs")
        self.items(("throughput", "step_models"), timing.step_models, STEP_MODELS, "unknown model")
        if accuracy.repeats < 2:
            self.note(("accuracy", "repeats"), "must be at least 2")
        for section, shapes in (("accuracy", accuracy.shapes), ("throughput", timing.shapes)):
            for index, shape in enumerate(shapes):
                # Times are also taken on input sets, whose names look different.
                if not SHAPE.fullmatch(shape) and (section == "accuracy" or re.match(r"\d+x", shape)):
                    problem = f"{shape!r} is not of the form batch x heads x sequence x head_dim"
                    self.note((section, "shapes", index), problem)

    def check_together(self, manifest: Manifest) -> None:
        """Checks what no single key can show."""
        gate, inputs = manifest.gate, manifest.accuracy.inputs
        for key, suite in (("dq_symmetry_ceiling", "symmetry"), ("repeat_spread_ceiling", "determinism")):
            places: list[Path] = [
                ("gate", "rules", index) for index, rule in enumerate(gate.rules) if key in rule.limits
            ]
            for place in ([("gate",)] if key in gate.limits else []) + places:
                if not getattr(manifest.accuracy, suite):
                    self.note((*place, key), f"needs {suite} = true under [accuracy]")
        self.items(("gate", "backends"), gate.backends or (), manifest.backends, "unknown backend")
        if not any(name.startswith("sha256:") for name in inputs):  # a set may be gated by its name
            self.items(("gate", "inputs"), gate.inputs or (), inputs, "[accuracy] inputs does not list")

    def check_rules(self, manifests: Mapping[str, Manifest]) -> None:
        """Notes the names of rules that fit nothing on any kind of device: such a rule would never hold."""
        if self.problems:
            return
        for index, rule in enumerate(next(iter(manifests.values())).gate.rules):
            for name in ("backends", "inputs", "shapes", "step_models"):
                there = sorted({case for manifest in manifests.values() for case in _names(manifest)[name]})
                for item, pattern in enumerate(getattr(rule, name) or ()):
                    if not any(fnmatchcase(case, pattern) for case in there) and not pattern.startswith("sha256:"):
                        path = ("gate", "rules", index, name, item)
                        self.note(path, f"{pattern!r} fits nothing that is gated here; {_meant(pattern, there)}")

    def with_rules(self, manifest: Manifest) -> Manifest:
        """The manifest, each of whose rules knows whether this kind of device measures a case that it is for."""
        names = _names(manifest)

        def is_expected(rule: GateRule) -> bool:
            patterns = [
                (name, pattern) for name in ("inputs", "shapes", "step_models") for pattern in getattr(rule, name) or ()
            ]
            fits = (fnmatchcase(case, pattern) for name, pattern in patterns for case in names[name])
            return not rule.names_cases or any(fits)

        rules = tuple(dataclasses.replace(rule, expected=is_expected(rule)) for rule in manifest.gate.rules)
        return dataclasses.replace(manifest, gate=dataclasses.replace(manifest.gate, rules=rules))


_STRINGS = dict.fromkeys(("informative", "backends", "inputs"), tuple[str, ...])


def _names(manifest: Manifest) -> dict[str, set[str]]:
    """The names that the filters of rules are held against: what the manifest measures and gates."""
    timed = {shape for shape in manifest.throughput.shapes if SHAPE.fullmatch(shape)}
    return {
        "backends": set(manifest.gate.backends or manifest.backends),
        "inputs": {*(manifest.gate.inputs or manifest.accuracy.inputs), *manifest.throughput.shapes} - timed,
        "shapes": timed | set(manifest.accuracy.shapes),
        "step_models": set(manifest.throughput.step_models),
    }


def _meant(name: str, names: Iterable[str]) -> str:
    """A hint at the known name that is closest to this one, else at all of them."""
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known here: {', '.join(names)}" if names else "there is none"
