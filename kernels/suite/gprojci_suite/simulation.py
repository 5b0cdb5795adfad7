"""Sessions with known noise, judged as real ones are: `python -m gprojci_suite.simulation` prints DECIDING.md's tables.

The noise is that of an H200: 1% within a session, 1.5% between sessions, and 5% of the calls 15% slower. In an
interleaved session both members share the machine's state, so what is between sessions cancels in every pair; the
rates of what would happen without interleaving are printed below the table. The second table adds what pairs cannot
cancel: every process is faster or slower than its code by 1% (standard deviation) for as long as it lives.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gprojci_suite.decision import RatioInterval, Side, between_sessions, next_look, ratio_interval, side

WITHIN = 0.01
BETWEEN = 0.015
OUTLIERS = 0.05
OUTLIER_SIZE = 0.15
APART = 0.01
"""Standard deviation of one process from its code, for as long as it lives."""
PAIRS, MAX_PAIRS, CONFIDENCE = 20, 80, 0.95
STEPS = (0.0, 0.03)
MARGINS = (0.0, 0.01, 0.015, 0.02, 0.03)


@dataclass(frozen=True)
class Setting:
    """How a session is measured, and what its processes differ by.

    Attributes:
        processes: of head, and as many of base.
        pairs: measured first.
        max_pairs: at most.
        apart: standard deviation of one process from its code, a fraction.
    """

    processes: int = 1
    pairs: int = PAIRS
    max_pairs: int = MAX_PAIRS
    apart: float = 0.0


ONE_PROCESS = Setting()
PROCESS_SETTINGS = (
    Setting(3, apart=APART),
    Setting(5, apart=APART),
    Setting(8, apart=APART),
    Setting(16, apart=APART),
    Setting(16, 48, 160, APART),
)
PROCESS_STEPS = (0.0, 0.03, 0.05)
PROCESS_MARGINS = (0.01, 0.015, 0.02, 0.03)


@dataclass(frozen=True)
class Rates:
    """How sessions with a true step end against one margin."""

    step: float
    margin: float
    sessions: int
    above: int
    below: int
    undecided: int
    mean_pairs: float


class SimulatedSession:
    """The pairs of one session, more of them whenever a look asks, and their interval at each look."""

    def __init__(self, generator: np.random.Generator, step: float, seed: int, setting: Setting = ONE_PROCESS) -> None:
        state = np.exp(generator.normal(0, BETWEEN))
        head = (1 + step) * state * _noise(generator, setting.max_pairs)
        base = state * _noise(generator, setting.max_pairs)
        apart = generator.normal(0, setting.apart, (2, setting.processes)) if setting.apart else np.zeros((2, 1))
        process = np.arange(setting.max_pairs) % apart.shape[1]
        self._ratios = (head / base * np.exp(apart[0, process] - apart[1, process])).tolist()
        self._seed = seed
        self._setting = setting
        self._intervals: dict[int, RatioInterval] = {}

    def interval(self, pairs: int) -> RatioInterval:
        """Interval of the first `pairs` pairs."""
        if pairs not in self._intervals:
            ratios, processes = self._ratios[:pairs], self._setting.processes
            self._intervals[pairs] = ratio_interval(ratios, CONFIDENCE, self._seed, processes)
        return self._intervals[pairs]

    def end(self, margin: float) -> tuple[Side, int]:
        """The outcome against a margin and the pairs it took."""
        pairs = self._setting.pairs
        while True:
            interval = self.interval(pairs)
            found = side(interval.low, interval.high, margin)
            more = next_look(pairs, self._setting.max_pairs)
            if found != "undecided" or more is None:
                return found, pairs
            pairs = more


def simulate(
    step: float, margins: Sequence[float], sessions: int, seed: int, setting: Setting = ONE_PROCESS
) -> list[Rates]:
    """Outcomes of `sessions` sessions whose head is 1 + step times as slow as its base, against each margin."""
    generator = np.random.default_rng(seed)
    ends: dict[float, list[tuple[Side, int]]] = {margin: [] for margin in margins}
    for number in range(sessions):
        session = SimulatedSession(generator, step, number, setting)
        for margin in margins:
            ends[margin].append(session.end(margin))
    return [
        Rates(
            step,
            margin,
            sessions,
            above=sum(end == "above" for end, _ in found),
            below=sum(end == "below" for end, _ in found),
            undecided=sum(end == "undecided" for end, _ in found),
            mean_pairs=sum(pairs for _, pairs in found) / sessions,
        )
        for margin, found in ends.items()
    ]


def across_sessions(margin: float, sessions: int, seed: int, *, widened: bool) -> int:
    """False alarms when head and base are timed in two sessions, so that what is between sessions does not cancel.

    Args:
        margin: as in `simulate`.
        sessions: pairs of sessions of one and the same code.
        seed: of the noise.
        widened: whether the interval is widened by the drift between sessions, as `compare` does.
    """
    generator = np.random.default_rng(seed)
    alarms = 0
    for number in range(sessions):
        times = [np.exp(generator.normal(0, BETWEEN)) * _noise(generator, MAX_PAIRS) for _ in range(2)]
        found = between_sessions(times[0].tolist(), times[1].tolist(), CONFIDENCE, number, anchored=not widened)
        alarms += side(found.low, found.high, margin) == "above"
    return alarms


def rates(sessions: int, seed: int) -> list[Rates]:
    """`simulate` for each step of STEPS against each margin of MARGINS."""
    return [item for step in STEPS for item in simulate(step, MARGINS, sessions, seed)]


def process_rates(sessions: int, seed: int) -> list[tuple[Setting, list[Rates]]]:
    """Rates of every step of PROCESS_STEPS and margin of PROCESS_MARGINS for each of PROCESS_SETTINGS."""
    return [
        (setting, [item for step in PROCESS_STEPS for item in simulate(step, PROCESS_MARGINS, sessions, seed, setting)])
        for setting in PROCESS_SETTINGS
    ]


def process_table(found: Sequence[tuple[Setting, Sequence[Rates]]]) -> str:
    """The same as a Markdown table: one line per setting and margin."""
    lines = [
        "| processes | pairs | margin | A/A: worse | A/A: not worse | +3%: worse | +5%: worse |",
        "|---|---|---|---|---|---|---|",
    ]
    for setting, items in found:
        counts = {(item.step, item.margin): item for item in items}
        for margin in PROCESS_MARGINS:
            same, three, five = (counts[step, margin] for step in PROCESS_STEPS)
            cells = (same.above, same.below, three.above, five.above)
            words = " | ".join(f"{count} of {same.sessions}" for count in cells)
            pairs = f"{setting.pairs} to {setting.max_pairs}"
            lines.append(f"| {setting.processes} | {pairs} | {margin:.1%} | {words} |")
    return "\n".join(lines)


def with_one_process(sessions: int, seed: int) -> str:
    """A sentence on false alarms when processes differ and there is one of each revision."""
    found = simulate(0.0, (0.01, 0.02), sessions, seed, Setting(apart=APART))
    counts = " and ".join(f"{item.above} at {item.margin:.1%}" for item in found)
    return f"One process of each revision, the same code: of {sessions} sessions, {counts} are called worse."


def table(found: Sequence[Rates]) -> str:
    """Rates as a Markdown table."""
    lines = ["| truth | margin | worse | not worse | cannot tell | pairs on average |", "|---|---|---|---|---|---|"]
    for item in found:
        truth = "A/A" if item.step == 0 else f"{item.step:+.0%}"
        counts = " | ".join(f"{count} of {item.sessions}" for count in (item.above, item.below, item.undecided))
        lines.append(f"| {truth} | {item.margin:.1%} | {counts} | {item.mean_pairs:.1f} |")
    return "\n".join(lines)


def without_interleaving(sessions: int, seed: int) -> str:
    """A sentence on false alarms when the two codes are timed in two sessions."""
    plain, widened = (across_sessions(0.01, sessions, seed, widened=flag) for flag in (False, True))
    return (
        f"Not interleaved, the same code in two sessions, margin 1.0%: {plain} of {sessions} are called worse; with "
        f"the interval widened by the drift between sessions, {widened}."
    )


def _noise(generator: np.random.Generator, count: int) -> Any:
    outliers = np.where(generator.random(count) < OUTLIERS, 1 + OUTLIER_SIZE, 1.0)
    return np.exp(generator.normal(0, WITHIN, count)) * outliers


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Rates of false alarms and of detection at the noise of an H200.")
    parser.add_argument("--sessions", type=int, default=1000, help="sessions of each kind (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the noise (default: 0)")
    options = parser.parse_args()
    print(table(rates(options.sessions, options.seed)))
    print("\n" + without_interleaving(max(1, options.sessions // 4), options.seed))
    print("\n" + process_table(process_rates(options.sessions, options.seed)))
    print("\n" + with_one_process(max(1, options.sessions // 4), options.seed))


if __name__ == "__main__":
    main()
