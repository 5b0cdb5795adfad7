"""The step suite: whole training steps with the attention swapped, two backends at a time, in interleaved pairs.

Every comparison holds two models (`step_model`), those of its two backends: a step's activations fill a good part of a
GPU, and memory given back between two steps would have to be allocated again inside the next. The share of attention is
1 − (step without attention) ÷ (step), neighbours in time in the same process, where "without" runs no kernel and hands
out a ready result (`step_model.NoAttention`): it counts what the backend costs the step, copies into its layout and
launches included.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gprojci_suite.answers import TrainingStepTaken
from gprojci_suite.contract.spec import ThroughputSpec
from gprojci_suite.contract.timing import Comparison, StepMeasurement
from gprojci_suite.contract.vocabulary import StepModel
from gprojci_suite.decision import decides, next_look, ratio_interval
from gprojci_suite.gpu_watch import STEADY, Watch
from gprojci_suite.member import Member
from gprojci_suite.session import Session
from gprojci_suite.throughput import comparison, comparisons

WARM_UP = 3
SHARE_PAIRS = 5


@dataclass
class _Taken:
    """What is known of one backend: its steps that count, every loss, void or not, and its share of attention."""

    steps: list[TrainingStepTaken] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    share: float | None = None


@dataclass
class _Paired:
    """Two backends and the ratios of their pairs."""

    member: Member
    against: Member
    decisive: bool
    ratios: list[float] = field(default_factory=list)
    void: int = 0


class _Models:
    """Which members hold a model; at most those asked for last."""

    def __init__(self, session: Session, model: StepModel, seed: int) -> None:
        self.session = session
        self.model = model
        self.seed = seed
        self.holding: list[Member] = []

    def hold(self, members: Sequence[Member]) -> bool:
        """Let exactly these members hold a warm model; False when one failed."""
        for member in self.holding:
            if member not in members:
                self.session.release(member)
        self.holding = [member for member in self.holding if member in members]
        for member in members:
            if member not in self.holding:
                if not self.session.load_step(member, self.model, self.seed):
                    return False
                self.holding.append(member)
                # The first step compiles.
                if not (self.session.step(member, self.model) and self.session.step(member, self.model, WARM_UP)):
                    return False
        return True


def measure(
    session: Session,
    model: StepModel,
    settings: ThroughputSpec,
    seed: int,
    progress: Callable[[str], None],
    watch: Watch = STEADY,
) -> tuple[list[StepMeasurement], list[Comparison]]:
    """Train one model on every backend that has not failed, and compare the times of a step.

    Head against base, the A/A control and every backend against the anchor take `pairs` pairs each; what must decide
    is paired further like attention alone, and pairs that `watch` finds throttled are void (see `throughput.measure`).
    """
    margin = settings.margin if settings.step_margin is None else settings.step_margin
    order = random.Random(seed)  # noqa: S311 (an order of measurements, not a secret)
    members = [member for member in session.members if member.ok]
    for member in members:
        session.release(member)
    taken = {member: _Taken() for member in members}
    models = _Models(session, model, seed)
    compared = [_Paired(item.member, item.against, item.decisive) for item in comparisons(members)]
    for item in compared:
        if not (item.member.ok and item.against.ok and models.hold([item.against, item.member])):
            continue
        progress(f"step {model} {item.member.launch.label} against {item.against.launch.label}")
        goal: int | None = settings.pairs
        while goal is not None:
            if not _pair(session, model, item, taken, goal, settings.max_pairs, order, watch):
                break
            for member in (item.member, item.against):
                _share(session, model, taken[member], member)
            interval = ratio_interval(item.ratios, settings.confidence, seed)
            done = not item.decisive or decides(interval, margin)
            goal = None if done else next_look(len(item.ratios), settings.max_pairs)
    # Whoever has nothing to be compared with, or whose anchor failed, is still timed.
    for member in [member for member in members if member.ok and len(taken[member].losses) < settings.pairs]:
        progress(f"step {model} {member.launch.label}")
        models.hold([])
        if models.hold([member]):
            taken[member] = _Taken(share=taken[member].share)  # a new model: its first steps are those that count
            while len(taken[member].losses) < settings.pairs and (steps := session.step(member, model)):
                taken[member].steps += steps
                taken[member].losses.append(steps[0].loss)
            _share(session, model, taken[member], member)
    for member in members:
        if member.ok:
            session.check_steps(member, model)
    models.hold([])
    return (
        [
            _measurement(member, model, taken[member], settings.pairs)
            for member in members
            # The loss is that of a certain step: whoever was ended before it has none.
            if member.counts
            and not member.launch.control
            and taken[member].steps
            and len(taken[member].losses) >= settings.pairs
        ],
        [
            comparison(
                (item.member, item.against),
                model,
                "step",
                item.ratios,
                ratio_interval(item.ratios, settings.confidence, seed),
                settings.confidence,
                void_pairs=item.void,
            )
            for item in compared
            if item.member.counts and item.against.counts and len(item.ratios) > 1
        ],
    )


def _pair(
    session: Session,
    model: StepModel,
    item: _Paired,
    taken: dict[Member, _Taken],
    goal: int,
    most_void: int,
    order: random.Random,
    watch: Watch,
) -> bool:
    """Interleave single steps of both until there are `goal` pairs; False when one failed or too many are void."""
    watch.begin()
    while len(item.ratios) < goal:
        found: dict[Member, TrainingStepTaken] = {}
        for member in order.sample([item.member, item.against], 2):
            steps = session.step(member, model)
            if steps is None:
                return False
            found[member] = steps[0]
            taken[member].losses.append(steps[0].loss)
        if watch.throttled():
            item.void += 1
            if item.void >= most_void:
                return False
            continue
        for member, step in found.items():
            taken[member].steps.append(step)
        item.ratios.append(found[item.member].seconds / found[item.against].seconds)
    return True


def _share(session: Session, model: StepModel, found: _Taken, member: Member) -> None:
    """The share of attention, once per backend, after its first pairs."""
    if found.share is not None or not found.steps or member.launch.control:
        return
    # What is trained without attention is of no use, but the times of later steps do not depend on it.
    shares = []
    if session.step(member, model, skip_attention=True) is None:  # makes what stands for the result
        return
    for _ in range(SHARE_PAIRS):
        whole = session.step(member, model)
        without = session.step(member, model, skip_attention=True) if whole else None
        if not (whole and without):
            return
        shares.append(1 - without[0].seconds / whole[0].seconds)
    found.share = statistics.median(shares)


def _measurement(member: Member, model: StepModel, found: _Taken, pairs: int) -> StepMeasurement:
    seconds = tuple(step.seconds for step in found.steps)
    peaks = [step.peak_memory_bytes for step in found.steps if step.peak_memory_bytes is not None]
    return StepMeasurement(
        backend=member.launch.backend,
        revision=member.launch.revision,
        model=model,
        seconds=seconds,
        median_seconds=statistics.median(seconds),
        attention_share=found.share,
        peak_memory_bytes=max(peaks) if peaks else None,
        loss=found.losses[pairs - 1],
    )
