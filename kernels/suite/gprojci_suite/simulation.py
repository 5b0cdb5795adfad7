"""Sessions with known noise, judged as real ones are: `python -m gprojci_suite.simulation` prints DECIDING.md's table.

The noise is that of an H200: 1% within a session, 1.5% between sessions, and 5% of the calls 15% slower. In an
interleaved session both members share the machine's state, so what is between sessions cancels in every pair; the
rates of what would happen without interleaving are printed below the table.
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
PAIRS, MAX_PAIRS, CONFIDENCE = 20, 80, 0.95
STEPS = (0.0, 0.03)
MARGINS = (0.0, 0.01, 0.015, 0.02, 0.03)


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

    def __init__(self, generator: np.random.Generator, step: float, seed: int) -> None:
        state = np.exp(generator.normal(0, BETWEEN))
        head = (1 + step) * state * _noise(generator, MAX_PAIRS)
        base = state * _noise(generator, MAX_PAIRS)
        self._ratios = (head / base).tolist()
        self._seed = seed
        self._intervals: dict[int, RatioInterval] = {}

    def interval(self, pairs: int) -> RatioInterval:
        """Interval of the first `pairs` pairs."""
        if pairs not in self._intervals:
            self._intervals[pairs] = ratio_interval(self._ratios[:pairs], CONFIDENCE, self._seed)
        return self._intervals[pairs]

    def end(self, margin: float) -> tuple[Side, int]:
        """The outcome against a margin and the pairs it took."""
        pairs = PAIRS
        while True:
            interval = self.interval(pairs)
            found = side(interval.low, interval.high, margin)
            more = next_look(pairs, MAX_PAIRS)
            if found != "undecided" or more is None:
                return found, pairs
            pairs = more


def simulate(step: float, margins: Sequence[float], sessions: int, seed: int) -> list[Rates]:
    """Outcomes of `sessions` sessions whose head is 1 + step times as slow as its base, against each margin."""
    generator = np.random.default_rng(seed)
    ends: dict[float, list[tuple[Side, int]]] = {margin: [] for margin in margins}
    for number in range(sessions):
        session = SimulatedSession(generator, step, number)
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


if __name__ == "__main__":
    main()
