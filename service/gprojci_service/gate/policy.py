"""Which limit holds for a backend and a case: that of the last rule that fits, else the gate's own.

The gate's own is that of `[gate.cpu]` or `[gate.cuda]` on such a device where it is set there, else that of `[gate]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gprojci_suite.contract.manifest import GateRule, GateSettings
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.vocabulary import STEP_MODELS


@dataclass(frozen=True)
class Limit:
    """A limit that holds."""

    value: float
    required: bool
    """Whether it decides."""
    line: int | None
    """Line of the manifest that sets it."""


class Policy:
    """A manifest's gate, applied to one report."""

    def __init__(self, settings: GateSettings, report: Report, hardware: str | None = None) -> None:
        """
        Args:
            hardware: class of the job; a rule is also found by the class that the report names itself.
        """
        self.settings = settings
        self._rules = settings.rules
        self._hashes: dict[str, str] = {}
        self._met: set[tuple[int, str, str]] = set()
        if settings.rules:
            classes = [name for name in (hardware, report.environment.hardware) if name is not None]
            self._rules = tuple(rule for rule in settings.rules if _fits(rule.hardware, classes))
            self._hashes = {entry.input: entry.content_hash for entry in report.inputs}

    def limit(self, key: str, backend: str, case: str) -> Limit | None:
        """The limit of a key for a backend in a case: an input set, a shape × mask × dtype, or a model."""
        value, line = self.settings.limits.get(key), self.settings.lines.get(key)
        required = key not in self.settings.informative
        for index, rule in enumerate(self._rules):
            if not _fits(rule.backends, [backend]) or not self._is_for(rule, case):
                continue
            if key in rule.limits:
                self._met.add((index, key, backend))
                value, line = rule.limits[key], rule.line
                required = key not in self.settings.informative if rule.required is None else rule.required
            elif not rule.limits and rule.required is not None:
                required = rule.required
        return None if value is None else Limit(value, required, line)

    def own(self, key: str) -> Limit | None:
        """The limit of a key that holds where no rule fits."""
        if key not in self.settings.limits:
            return None
        required = key not in self.settings.informative
        return Limit(self.settings.limits[key], required, self.settings.lines.get(key))

    def unmet(self, backend: str) -> Iterator[tuple[str, Limit, str]]:
        """Each key and limit of rules for a backend whose cases `limit` was never asked about, and these in words.

        A rule whose cases this kind of device does not measure is left out, and one that repeats a key of the gate.
        """
        for index, rule in enumerate(self._rules):
            if not rule.expected or not _fits(rule.backends, [backend]):
                continue
            for key, value in rule.limits.items():
                if (index, key, backend) not in self._met and (rule.names_cases or key not in self.settings.limits):
                    required = key not in self.settings.informative if rule.required is None else rule.required
                    yield key, Limit(value, required, rule.line), ", ".join(_cases(rule))

    def _is_for(self, rule: GateRule, case: str) -> bool:
        if not rule.names_cases:
            return True
        if case in self._hashes:
            return _fits(rule.inputs or (), [case, self._hashes[case]])
        if case in STEP_MODELS:
            return _fits(rule.step_models or (), [case])
        return _fits(rule.shapes or (), [case.partition(".")[0], case]) or _fits(rule.inputs or (), [case])


def _cases(rule: GateRule) -> Iterator[str]:
    for names in (rule.inputs, rule.shapes, rule.step_models):
        yield from names or ()


def _fits(patterns: tuple[str, ...] | None, names: Iterable[str]) -> bool:
    return patterns is None or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
