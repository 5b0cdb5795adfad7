"""One run of the ruler: start the backends, measure accuracy and throughput in one session, write the report."""

import contextlib
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from gprojci_suite import (
    accuracy,
    anatomy,
    ceilings,
    determinism,
    environment,
    identity,
    peers,
    step,
    step_model,
    surface,
    symmetry,
    throughput,
)
from gprojci_suite.contract.report import SCHEMA_VERSION, Accuracy, Report, Slice, Subject
from gprojci_suite.contract.spec import RunSpec
from gprojci_suite.contract.surface import Surface
from gprojci_suite.contract.symmetry import Symmetry
from gprojci_suite.contract.timing import Ceilings, Comparison, Kernel, Measurement, Step, StepMeasurement
from gprojci_suite.contract.timing import Throughput as ThroughputResults
from gprojci_suite.contract.vocabulary import StepModel, Suite
from gprojci_suite.ending import Ending
from gprojci_suite.gpu_watch import STEADY, GpuWatch, Watch
from gprojci_suite.inputs import InputSet, load
from gprojci_suite.member import Case, Launch, Member, control_of
from gprojci_suite.one_thread import one_thread
from gprojci_suite.readable import plain
from gprojci_suite.reference import AttentionResult
from gprojci_suite.session import Session

Progress = Callable[[str], None]
Timed = TypeVar("Timed", Measurement, StepMeasurement)

USE_INPUTS = {"accuracy", "symmetry", "determinism"}
"""Suites that measure on the input sets."""

TIMED = {"throughput", "step"}
"""Suites that compare times."""


def run(spec: RunSpec, progress: Progress, ending: Ending | None = None) -> Report:
    """Measure what `spec` asks for; failures of backends are part of the report.

    A run that is ended reports what it has. Every backend with something left to do is `timeout`, with what that was;
    suites that were not reached are null.

    Args:
        spec: a decoded spec.
        progress: called with one line per step.
        ending: when it ends early; after the spec's `session_seconds` when left out.

    Raises:
        InputError: an input set does not exist or cannot be used.
        UnknownPeer: the ruler has no peer of that name.
        EnvironmentFault: the device is not there.
    """
    ending = ending or Ending(spec.limits.session_seconds)
    begin, created = time.monotonic(), datetime.now(UTC)
    environment.check_device(spec.device)
    plan = launches(spec)
    watch = GpuWatch(environment.gpu()) if spec.device == "cuda" else None
    with contextlib.ExitStack() as until_the_end:
        if watch:
            until_the_end.enter_context(watch)
        session = until_the_end.enter_context(Session(plan, spec.device, spec.limits, ending))
        # They import torch while everything is made here that they are asked and judged by.
        session.launch()
        probe = until_the_end.enter_context(ceilings.Probe(spec.device)) if "throughput" in spec.suites else None
        inputs = [_load(spec, name) for name in spec.inputs] if USE_INPUTS & set(spec.suites) else []
        timed = _timed_cases(spec) if "throughput" in spec.suites else []
        beside = until_the_end.enter_context(ThreadPoolExecutor(1))
        expectations = beside.submit(_expectations, spec, inputs, timed)
        layers = {item.name: layer_cases(item) for item in inputs}
        invariant = {**layers, **_long_cases(spec)} if {"symmetry", "determinism"} & set(spec.suites) else {}
        sweep = surface.places(spec.seed) if "surface" in spec.suites else []
        for number, member in enumerate(session.start(), 1):
            progress(f"start {member.launch.label} {number}/{len(plan)} {member.status}")
        cases = [case for by_layer in {**layers, **invariant}.values() for case in by_layer.values()]
        session.refuse_unsupported(cases + timed)
        session.refuse_unsupported([place.case for place in sweep[:1]])  # they all have one shape
        session.refuse_unsupported_shapes(_step_cases(spec))
        session.launch_further()
        if spec.device == "cuda":
            _warm(session, cases, progress)
        expected = expectations.result()
        reached = _Reached(session, spec, progress)
        with one_thread():
            slices, spread = _accuracy(
                session, inputs if reached("accuracy") else [], layers, expected.references, progress
            )
            moved = symmetry.measure(session, invariant if reached("symmetry") else {}, progress)
            repeats = spec.invariants.repeats
            repeated = determinism.measure(session, invariant if reached("determinism") else {}, repeats, progress)
        points = surface.measure(session, sweep if reached("surface") else [], progress)
        timed = timed if reached("throughput") else []
        session.start_further()
        if timed:
            progress(f"processes ready: {session.processes}")
        limits = _ceilings(probe, spec, progress, ending) if probe and timed else None
        measurements, comparisons = _throughput(
            session, spec, timed, expected.audits, progress, watch or STEADY, limits
        )
        measurements, kernels = _anatomy(session, spec, timed, measurements, progress)
        session.stop_further()
        if timed and ending.reason is None:
            progress("calls timed")
        models = spec.throughput.step_models if spec.throughput and reached("step") else ()
        trained, steps_compared = _steps(session, spec, models, progress, watch or STEADY)
        statuses = session.statuses()
    measured = {(entry.backend, entry.revision) for entry in statuses if entry.status != "unsupported"}
    slices = [item for item in slices if (item.backend, item.revision) in measured]
    points = [item for item in points if (item.backend, item.revision) in measured]
    responses = [item for item in moved.responses if (item.backend, item.revision) in measured]
    repeated = [item for item in repeated if (item.backend, item.revision) in measured]
    return Report(
        schema_version=SCHEMA_VERSION,
        created_at=created.isoformat(timespec="seconds"),
        duration_seconds=time.monotonic() - begin,
        seed=spec.seed,
        repro=repro(spec),
        ruler=identity.ruler(),
        subjects=tuple(
            Subject(s.backend, s.revision, s.commit, s.build_key, s.entry, s.build_seconds) for s in spec.subjects
        ),
        environment=environment.describe(spec.device, watch.samples() if watch else None),
        backends=statuses,
        inputs=tuple(item.describe() for item in inputs),
        accuracy=Accuracy(tuple(slices), tuple(accuracy.summarise(slices, spread)))
        if "accuracy" in reached.suites
        else None,
        throughput=ThroughputResults(
            tuple(measurements),
            tuple(comparisons),
            limits,
            tuple(kernels),
            tuple(check for member in session.members if not member.launch.control for check in member.clock_checks),
        )
        if "throughput" in reached.suites
        else None,
        surface=Surface(tuple(points)) if "surface" in reached.suites else None,
        symmetry=Symmetry(tuple(responses), tuple(symmetry.summarise(responses)))
        if "symmetry" in reached.suites
        else None,
        determinism=tuple(repeated) if "determinism" in reached.suites else None,
        step=Step(tuple(trained), tuple(steps_compared)) if "step" in reached.suites else None,
        working_seconds=session.working.seconds,
    )


@dataclass(frozen=True)
class _Expectations:
    """What backends are judged by: float64 results by input set and layer, and the audits of what is timed, by case."""

    references: dict[str, dict[str, AttentionResult]]
    audits: dict[str, throughput.Audits]


class _Reached:
    """Begins the suites that are asked for while there is time, and keeps which ones that were."""

    def __init__(self, session: Session, spec: RunSpec, progress: Progress) -> None:
        self.session = session
        self.asked = spec.suites
        self.progress = progress
        self.suites: set[Suite] = set()

    def __call__(self, suite: Suite) -> bool:
        """Whether the suite is asked for and the session goes on."""
        if suite not in self.asked:
            return False
        if self.session.over(suite):
            self.progress(f"{suite} skipped: {self.session.ending.reason}")
            return False
        self.session.suite = suite
        self.suites.add(suite)
        return True


def launches(spec: RunSpec) -> list[Launch]:
    """Every process of the run: subjects, one A/A control when timing, the anchor, the peers; raises UnknownPeer."""
    found = [
        Launch(s.backend, s.revision, "subject", s.python, s.entry, s.site, None if s.site else str(Path.cwd()))
        for s in spec.subjects
    ]
    names = list(dict.fromkeys([*([spec.anchor] if spec.anchor else []), *spec.peers]))
    for name in names:
        peers.check(name)
    if TIMED & set(spec.suites):
        head = next((launch for launch in found if launch.revision == "head"), None)
        found += [control_of(head)] if head else []
    found += [Launch(name, "ruler", "anchor" if name == spec.anchor else "peer", sys.executable) for name in names]
    return [replace(launch, processes=_processes(spec, launch, len(found))) for launch in found]


def _processes(spec: RunSpec, launch: Launch, backends: int) -> int:
    """How many processes of a backend are timed: one of those that nothing is compared with."""
    if "throughput" not in spec.suites or spec.throughput is None:
        return 1
    compared = backends > 1 and (spec.anchor is not None or launch.role == "subject")
    return spec.throughput.processes if compared else 1


def layer_cases(inputs: InputSet) -> dict[str, Case]:
    """One case per layer of an input set."""
    return {
        layer: Case(f"{inputs.name} {layer}", tensors, inputs.causal, inputs.softmax_scale)
        for layer, tensors in inputs.layers.items()
    }


def repro(spec: RunSpec) -> str:
    """Command that measures the same again, with the subjects importable where it is typed."""
    words = ["gprojci-suite", "bench"]
    heads = [subject for subject in spec.subjects if subject.revision == "head"]
    for subject in heads:
        words += ["--backend-entry", f"{subject.backend}={subject.entry}"]
    words += ["--backends", ",".join([*(s.backend for s in heads), *spec.peers])]
    if spec.inputs:
        words += ["--inputs", ",".join(spec.inputs)]
    words += ["--suites", ",".join(spec.suites), "--device", spec.device, "--seed", str(spec.seed)]
    if USE_INPUTS & set(spec.suites) and spec.invariants.shapes:
        words += ["--invariant-shapes", ",".join(spec.invariants.shapes)]
    if "determinism" in spec.suites:
        words += ["--repeats", str(spec.invariants.repeats)]
    if spec.input_directory:
        words += ["--input-directory", spec.input_directory]
    if "throughput" in spec.suites and spec.throughput:
        timing = spec.throughput
        words += ["--shapes", ",".join(timing.shapes), *([] if timing.causal else ["--full-mask"])]
    if TIMED & set(spec.suites) and spec.throughput:
        timing = spec.throughput
        words += ["--step-models", ",".join(timing.step_models)] if "step" in spec.suites else []
        words += ["--anchor", spec.anchor] if spec.anchor else []
        words += ["--pairs", str(timing.pairs), "--max-pairs", str(timing.max_pairs), "--margin", f"{timing.margin:g}"]
        words += ["--processes", str(timing.processes)] if "throughput" in spec.suites else []
    return shlex.join(words)


def write(report: Report, path: Path) -> None:
    """Write a report whole or not at all, after checking that it keeps the contract."""
    text = report.dumps()
    Report.loads(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _load(spec: RunSpec, name: str) -> InputSet:
    return load(name, Path(spec.input_directory) if spec.input_directory else None)


def _long_cases(spec: RunSpec) -> dict[str, dict[str, Case]]:
    """The shapes of symmetry and determinism as cases of one layer."""
    settings = spec.invariants
    cases = [throughput.shape_case(shape, settings.causal, spec.seed) for shape in settings.shapes]
    return {case.name: {"S": case} for case in cases}


def _timed_cases(spec: RunSpec) -> list[Case]:
    assert spec.throughput is not None
    cases = []
    for shape in spec.throughput.shapes:
        if shape[0].isdigit() and not shape.endswith(".safetensors"):
            cases.append(throughput.shape_case(shape, spec.throughput.causal, spec.seed))
        else:
            cases.append(throughput.input_case(_load(spec, shape)))
    return cases


def _expectations(spec: RunSpec, inputs: Sequence[InputSet], timed: Sequence[Case]) -> _Expectations:
    references = {item.name: accuracy.references(item) for item in inputs} if "accuracy" in spec.suites else {}
    return _Expectations(references, {case.name: throughput.draw_audits(case, spec.device) for case in timed})


def _warm(session: Session, cases: Sequence[Case], progress: Progress) -> None:
    """Have the first process of every backend call it on one case of each kind that is compiled for by itself."""
    kinds = {tuple(case.shape().values()): case for case in cases}
    members = [member for member in session.members if not member.launch.control]
    for number, case in enumerate(kinds.values(), 1):
        session.warm(members, case, further=False)
        progress(f"warm-up {number}/{len(kinds)}")


def _accuracy(
    session: Session,
    inputs: Sequence[InputSet],
    layers: dict[str, dict[str, Case]],
    references: Mapping[str, Mapping[str, AttentionResult]],
    progress: Progress,
) -> tuple[list[Slice], dict[accuracy.Key, float]]:
    """Every backend on every input set, against the references by input set and layer; subjects twice for their
    run-to-run spread.
    """
    found: list[Slice] = []
    spread: dict[accuracy.Key, float] = {}
    members = [member for member in session.members if not member.launch.control]
    total, done = len(inputs) * len(members), 0
    for item in inputs:
        if session.over(f"accuracy of {item.name}"):
            progress(f"accuracy {item.name} skipped: {session.ending.reason}")
            break
        expected = references[item.name]
        for member in members:
            done += 1
            if member.process is None:
                progress(f"accuracy {member.launch.label} {item.name} {done}/{total} skipped: {member.status}")
                continue
            results = _compute_layers(session, member, layers[item.name])
            if results is not None:
                name = (member.launch.backend, member.launch.revision, item.name)
                slices = accuracy.slices(*name, results, expected)
                found += slices
                again = _compute_layers(session, member, layers[item.name]) if member.launch.role == "subject" else None
                if again is not None:
                    same = all(
                        torch.equal(results[layer][tensor], again[layer][tensor])
                        for layer in results
                        for tensor in results[layer]
                    )
                    spread |= accuracy.spreads(slices, None if same else accuracy.slices(*name, again, expected))
            progress(f"accuracy {member.launch.label} {item.name} {done}/{total} {member.status}")
    return found, spread


def _compute_layers(session: Session, member: Member, cases: dict[str, Case]) -> dict[str, dict[str, Tensor]] | None:
    """Results of every layer, or None as soon as the backend fails on one."""
    results = {}
    for layer, case in cases.items():
        computed = session.compute(member, case)
        if computed is None:
            return None
        results[layer] = computed
    return results


def _ceilings(probe: ceilings.Probe, spec: RunSpec, progress: Progress, ending: Ending) -> Ceilings | None:
    found = probe.measure(spec.limits.call_seconds, ending)
    if isinstance(found, str):
        progress(f"ceilings unknown: {found}")
        return None
    progress(f"ceilings {plain(found.matmul_tflops)} TFLOP/s, {plain(found.copy_gb_s)} GB/s")
    return found


def _throughput(
    session: Session,
    spec: RunSpec,
    cases: Sequence[Case],
    audits: Mapping[str, throughput.Audits],
    progress: Progress,
    watch: Watch,
    limits: Ceilings | None,
) -> tuple[list[Measurement], list[Comparison]]:
    measurements: list[Measurement] = []
    comparisons: list[Comparison] = []
    for number, case in enumerate(cases):
        assert spec.throughput is not None
        if session.over(f"throughput of {case.name}"):
            progress(f"throughput {case.name} skipped: {session.ending.reason}")
            break
        progress(f"throughput {case.name} case {number + 1}/{len(cases)}")
        some, compared = throughput.measure(
            session, case, spec.throughput, spec.seed + number, progress, watch, limits, audits[case.name]
        )
        measurements += some
        comparisons += compared
    return _without_failed(session, measurements, comparisons)


def _anatomy(
    session: Session, spec: RunSpec, cases: Sequence[Case], measurements: list[Measurement], progress: Progress
) -> tuple[list[Measurement], list[Kernel]]:
    """Kernels and graph times of what was timed on a GPU."""
    if spec.device != "cuda" or not measurements:
        return measurements, []
    return anatomy.measure(session, cases, measurements, progress)


def _step_cases(spec: RunSpec) -> dict[str, dict[str, Any]]:
    """What attention computes in the models to train, by name."""
    if "step" not in spec.suites or spec.throughput is None:
        return {}
    return {f"step {name}": step_model.shape_of(name).attention_case() for name in spec.throughput.step_models}


def _steps(
    session: Session, spec: RunSpec, models: Sequence[StepModel], progress: Progress, watch: Watch
) -> tuple[list[StepMeasurement], list[Comparison]]:
    measurements: list[StepMeasurement] = []
    comparisons: list[Comparison] = []
    for name in models:
        assert spec.throughput is not None
        if session.over(f"step of {name}"):
            progress(f"step {name} skipped: {session.ending.reason}")
            break
        some, compared = step.measure(session, name, spec.throughput, spec.seed, progress, watch)
        measurements += some
        comparisons += compared
    return _without_failed(session, measurements, comparisons)


def _without_failed(
    session: Session, measurements: Sequence[Timed], comparisons: Sequence[Comparison]
) -> tuple[list[Timed], list[Comparison]]:
    """Leave out what a backend measured before it turned out that it cannot compute a later case."""
    failed = {
        (m.launch.backend, m.launch.revision) for m in session.members if m.status in ("unsupported", "build_error")
    }
    return (
        [item for item in measurements if (item.backend, item.revision) not in failed],
        [
            item
            for item in comparisons
            if not {(item.backend, item.revision), (item.against_backend, item.against_revision)} & failed
        ],
    )
