"""The throughput suite: all backends timed in interleaved rounds, so that every ratio comes from neighbours in time."""

import random
import re
import secrets
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gprojci_suite import audit
from gprojci_suite.answers import StepSeconds
from gprojci_suite.ceilings import attention_flops
from gprojci_suite.contract.spec import ThroughputSpec
from gprojci_suite.contract.timing import Ceilings, ClockCheck, Comparison, Measurement
from gprojci_suite.contract.vocabulary import PASSES, Device, Pass
from gprojci_suite.cuda_timing import CALIBRATED, DISCARDED
from gprojci_suite.decision import RatioInterval, decides, next_look, ratio_interval
from gprojci_suite.gpu_watch import STEADY, Watch
from gprojci_suite.inputs import InputError, InputSet, LayerTensors
from gprojci_suite.inputs.sets import DTYPES
from gprojci_suite.member import Case, Member
from gprojci_suite.readable import plain
from gprojci_suite.session import Session

WARM_UP = DISCARDED + CALIBRATED - 1
"""Steps after the first one of a process: with it those that calibrate the spins of `cuda_timing`."""

Pair = tuple[StepSeconds, StepSeconds]
Audits = tuple[audit.Audit, audit.Audit]
"""That of a step in the rounds, and that of a step after them."""


@dataclass
class Compared:
    """Two members and the pairs of steps measured side by side."""

    member: Member
    against: Member
    decisive: bool
    pairs: list[Pair]
    void: int = 0

    @property
    def counts(self) -> bool:
        """Whether what was measured of both is as it should be."""
        return self.member.counts and self.against.counts

    @property
    def processes(self) -> int:
        """Processes that have measured pairs: pair i was measured by process i mod this number of both."""
        return min(self.member.launch.processes, max(1, len(self.pairs)))

    def ratios(self, which: Pass) -> list[float]:
        """Ratio of each pair in one pass."""
        return [getattr(a, which) / getattr(b, which) for a, b in self.pairs]

    def interval(self, which: Pass, confidence: float, seed: int) -> RatioInterval:
        """Interval of the ratio in one pass."""
        return ratio_interval(self.ratios(which), confidence, seed, self.processes)


def shape_case(shape: str, causal: bool, seed: int) -> Case:
    """Standard normal BF16 tensors of a shape `batch x heads x sequence x head_dim`; raises InputError."""
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)x(\d+)", shape)
    sizes = [int(part) for part in match.groups()] if match else []
    if not sizes or min(sizes) == 0 or sizes[0] * sizes[1] * sizes[2] * sizes[3] > 2**31:
        raise InputError(f"{shape}: neither an input set nor a shape batch x heads x sequence x head_dim")
    generator = torch.Generator().manual_seed(seed)
    tensors = LayerTensors(*(torch.randn(*sizes, generator=generator).to(torch.bfloat16) for _ in range(4)))
    return Case(case_name(shape, causal, torch.bfloat16), tensors, causal, sizes[3] ** -0.5, normal=True)


def input_case(inputs: InputSet) -> Case:
    """The first layer of an input set as a case."""
    tensors = next(iter(inputs.layers.values()))
    return Case(case_name(inputs.name, inputs.causal, inputs.dtype), tensors, inputs.causal, inputs.softmax_scale)


def draw_audits(case: Case, device: Device) -> Audits:
    """What `measure` audits the backends of a case with; takes seconds."""
    one, two = (
        audit.draw(
            case.tensors, causal=case.causal, softmax_scale=case.softmax_scale, normal=case.normal, device=device
        )
        for _ in range(2)
    )
    return one, two


def case_name(what: str, causal: bool, dtype: torch.dtype) -> str:
    """Name of a case: shape or input set, mask, element type."""
    return f"{what}.{'causal' if causal else 'full'}.{DTYPES[dtype]}"


def measure(
    session: Session,
    case: Case,
    settings: ThroughputSpec,
    seed: int,
    progress: Callable[[str], None],
    watch: Watch = STEADY,
    ceilings: Ceilings | None = None,
    audits: Audits | None = None,
) -> tuple[list[Measurement], list[Comparison]]:
    """Time one case on every backend that has not failed, and compare.

    Rounds of one step per backend in random order make the pairs, round i in process i mod `processes` of each. Where
    head against base (or against the anchor when there is no base) is not decided against the margin after `pairs`
    rounds, those two alone are paired further, twice as many each time, up to `max_pairs`. What `watch` finds throttled
    is void and repeated in the same processes, until `max_pairs` are void. One step of each backend in the rounds, at
    random, and one after the last are audited, with what is drawn here unless it is given.

    Where the session ends on the way, the rounds that were finished are the measurement, without that last audit; the
    backends are `timeout` then, which says so.
    """
    order = random.Random(seed)  # noqa: S311 (an order of measurements, not a secret)
    if session.device == "cuda":  # On a CPU nothing is compiled, and side by side they take each other's cores.
        session.warm(session.members, case, further=True)
    members = []
    for member in [member for member in session.members if member.ok]:
        if not session.over(f"throughput of {case.name}") and _warm(session, member, case):
            members.append(member)
        said = member.status if member.ok else f"{member.status}: {member.detail}"
        checks = [check for check in member.clock_checks if check.case == case.name]
        progress(f"throughput {case.name} warm-up {member.launch.label} {said}{_clock_said(checks)}")
    if not any(member.ok for member in members):
        return [], []
    samples: dict[Member, list[StepSeconds]] = {member: [] for member in members}
    within, after = audits or draw_audits(case, session.device)
    audited = {member: secrets.randbelow(settings.pairs) for member in members}
    done = void = 0
    watch.begin()
    while done < settings.pairs and void < settings.max_pairs and any(member.ok for member in members):
        if done % 5 == 0:
            progress(f"throughput {case.name} {done}/{settings.pairs}")
        taken: dict[Member, list[StepSeconds]] = {}
        for member in _shuffled(members, order):
            due = within if audited[member] == done else None
            step = session.time(member, case, process=done, audit=due) if member.ok else None
            if step is not None:
                taken[member] = step
        if any(member.unfinished for member in members):
            progress(f"throughput {case.name} ended after {done}/{settings.pairs} rounds: {session.ending.reason}")
            break
        if watch.throttled():
            void += 1
            continue
        done += 1
        for member, step in taken.items():
            samples[member] += step
    alive = [member for member in members if member.counts]
    compared = comparisons(alive)
    for item in compared:
        item.pairs = list(zip(samples[item.member], samples[item.against], strict=True))
        item.void = void
    for item in compared:
        if item.decisive and len(item.pairs) > 1 and item.counts:
            _decide(session, case, settings, seed, order, item, samples, progress, watch)
    for member in _shuffled([member for member in alive if member.ok], order):
        if session.time(member, case, process=secrets.randbelow(member.launch.processes), audit=after):
            session.check_single_calls(member, case)
    finished = [item for item in compared if item.counts and len(item.pairs) > 1]
    timed = [member for member in alive if member.counts and samples[member]]
    return (
        [entry for member in timed for entry in _measurements(member, case, samples[member], ceilings)],
        [_comparison(item, case, which, settings.confidence, seed) for item in finished for which in PASSES],
    )


def comparisons(members: Sequence[Member]) -> list[Compared]:
    """Head against base, the A/A control, and everything against the anchor."""
    found: list[Compared] = []
    anchor = next((member for member in members if member.launch.role == "anchor"), None)
    bases = {m.launch.backend: m for m in members if m.launch.revision == "base"}
    heads = {m.launch.backend: m for m in members if m.launch.revision == "head" and not m.launch.control}
    for name, head in heads.items():
        if name in bases:
            found.append(Compared(head, bases[name], True, []))
    for member in members:
        if member.launch.control and member.launch.backend in heads:
            found.append(Compared(heads[member.launch.backend], member, False, []))
        elif anchor is not None and member is not anchor and not member.launch.control:
            found.append(Compared(member, anchor, member.launch.revision == "head" and not bases, []))
    return found


def _warm(session: Session, member: Member, case: Case) -> bool:
    """Warm up, then check the child's clock against the parent's over batches of steps, in every process."""
    for process in range(member.launch.processes):
        first = session.time(member, case, 1, process)
        warm = first and session.time(member, case, WARM_UP, process)
        if not warm:
            return False
        if not session.check_clock(member, case, process):
            return False
    return True


def _clock_said(checks: Sequence[ClockCheck]) -> str:
    """What the checks of a member's processes came to, and what the first without a verdict read."""
    if not checks:
        return ""
    unclear = [check for check in checks if check.verdict == "unclear"]
    took = f"{sum(check.check_seconds for check in checks):.1f} s"
    if not unclear:
        return f", clock checked in {took}"
    one = unclear[0]
    milliseconds = (one.child_seconds, one.ruler_seconds, one.empty_low, one.empty_high)
    child, ruler, low, high = (plain(seconds * 1000) for seconds in milliseconds)
    return (
        f", clock unclear in {len(unclear)} of {len(checks)} processes after {took}: {one.requests} requests of"
        f" {one.calls} calls, each {child} ms by its clock and {ruler} ms by the ruler's, {low} to {high} ms beside it"
    )


def _shuffled(members: Sequence[Member], order: random.Random) -> list[Member]:
    """Random order in which the processes of one backend stay next to each other."""
    rank = {member.launch.backend: order.random() for member in members}
    return sorted(members, key=lambda member: (rank[member.launch.backend], order.random()))


def _decide(
    session: Session,
    case: Case,
    settings: ThroughputSpec,
    seed: int,
    order: random.Random,
    item: Compared,
    samples: dict[Member, list[StepSeconds]],
    progress: Callable[[str], None],
    watch: Watch,
) -> None:
    while (goal := next_look(len(item.pairs), settings.max_pairs)) is not None:
        if decides(item.interval("forward_backward", settings.confidence, seed), settings.margin):
            return
        progress(f"throughput {case.name} {item.member.launch.label} undecided, {goal} pairs")
        while len(item.pairs) < goal:
            steps: dict[Member, StepSeconds] = {}
            for member in order.sample([item.member, item.against], 2):
                measured = session.time(member, case, process=len(item.pairs)) if member.ok else None
                if measured is None:
                    return
                steps[member] = measured[0]
            if watch.throttled():
                item.void += 1
                if item.void >= settings.max_pairs:
                    return
                continue
            item.pairs.append((steps[item.member], steps[item.against]))
            for member, step in steps.items():
                samples[member].append(step)


def _measurements(
    member: Member, case: Case, steps: Sequence[StepSeconds], ceilings: Ceilings | None
) -> list[Measurement]:
    if member.launch.control:
        return []
    batch, heads, seq_q, head_dim = case.tensors.q.shape
    flops = attention_flops(batch, heads, seq_q, case.tensors.k.shape[2], head_dim, causal=case.causal)
    result = []
    for which in PASSES:
        seconds = tuple(getattr(step, which) for step in steps)
        median = statistics.median(seconds)
        tflops = flops[which] / median / 1e12
        peaks = [peak for peak in (step.peak(which) for step in steps) if peak is not None]
        host = [taken for taken in (step.host(which) for step in steps) if taken is not None]
        result.append(
            Measurement(
                backend=member.launch.backend,
                revision=member.launch.revision,
                case=case.name,
                pass_=which,
                seconds=seconds,
                median_seconds=median,
                tflops=tflops,
                ceiling_share=tflops / ceilings.matmul_tflops if ceilings else None,
                peak_memory_bytes=max(peaks, default=None),
                host_seconds=statistics.median(host) if host else None,
            )
        )
    return result


def _comparison(item: Compared, case: Case, which: Pass, confidence: float, seed: int) -> Comparison:
    interval = item.interval(which, confidence, seed)
    ratios = item.ratios(which)
    pair = (item.member, item.against)
    return comparison(
        pair, case.name, which, ratios, interval, confidence, void_pairs=item.void, processes=item.processes
    )


def comparison(
    pair: tuple[Member, Member],
    case: str,
    which: Pass,
    ratios: Sequence[float],
    interval: RatioInterval,
    confidence: float,
    *,
    void_pairs: int,
    processes: int = 1,
) -> Comparison:
    """What the report says of two members timed in pairs, the first over the second; `case` may be a training model."""
    member, against = pair
    return Comparison(
        backend=member.launch.backend,
        revision=member.launch.revision,
        against_backend=against.launch.backend,
        against_revision=against.launch.revision,
        case=case,
        pass_=which,
        pairs=len(ratios),
        ratio=interval.ratio,
        low=interval.low,
        high=interval.high,
        confidence=confidence,
        ratios=tuple(ratios),
        control=against.launch.control,
        void_pairs=void_pairs,
        processes=processes,
    )
