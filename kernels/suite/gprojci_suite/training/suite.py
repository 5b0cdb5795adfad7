"""All runs of a command: a process each, some side by side, and the report of what their folders hold."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from gprojci_suite import environment, identity
from gprojci_suite.contract import codec
from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.report import Environment
from gprojci_suite.contract.training import FINISHED, KIND, TrainingReport, TrainingRun, TrainingSetup
from gprojci_suite.contract.vocabulary import Device
from gprojci_suite.ending import Ending
from gprojci_suite.inputs import InputError
from gprojci_suite.process import available_threads
from gprojci_suite.training import files
from gprojci_suite.training.run import NO_END, RunSettings, not_trained

POLL_SECONDS = 0.1
REPORT_SECONDS = 20.0
PATIENCE_SECONDS = 60.0
"""How long a process may take to save and end when it is asked to."""
TAIL_BYTES = 2000
"""How much of what a process said its report keeps where it died."""
STORY = "setup.json"
CAPTURES = "captures"


@dataclass(frozen=True)
class Story:
    """What the folder of a setup says of itself; runs are added to it only under the same."""

    name: str
    created_at: str
    setup: TrainingSetup


@dataclass(frozen=True)
class Plan:
    """A command.

    Attributes:
        name: of the setup.
        setup: what all runs have in common.
        backends: names, with the entry of those that are no peers.
        seeds: every backend is trained with each.
        directory: where each run has a folder.
        device: cpu or cuda.
        side_by_side: processes at a time.
        shared_with: processes that others run on the device meanwhile.
        seconds: after which no run goes on; None for no limit.
        checkpoint_every: steps between two checkpoints.
        resume: go on with what the directory holds.
        earlier: reports, by path, whose finished runs are taken and not trained again.
        repro: command of the report.
    """

    name: str
    setup: TrainingSetup
    backends: Mapping[str, str | None]
    seeds: Sequence[int]
    directory: Path
    device: Device
    side_by_side: int
    shared_with: int
    seconds: float | None
    checkpoint_every: int
    resume: bool
    earlier: Mapping[str, TrainingReport]
    repro: str


@dataclass
class _Process:
    """One run under way."""

    backend: str
    seed: int
    folder: Path
    process: subprocess.Popen[bytes]
    said: str = field(default="")


def train(
    plan: Plan, progress: Callable[[str], None], ending: Ending, keep: Callable[[TrainingReport], None]
) -> TrainingReport:
    """Train what is missing; `keep` gets a report now and then, and the last one is returned.

    Raises:
        InputError: the directory, or an earlier report, holds runs of another setup; the directory holds any and the
            plan does not resume; an earlier report is of other hardware.
    """
    machine = environment.describe(plan.device)
    for path, report in plan.earlier.items():
        _check_earlier(plan, path, report, machine)
    story = _story(plan)
    for report in plan.earlier.values():
        _take(plan, report)
    begin, reported = time.monotonic(), time.monotonic()
    # Seeds outside, so that a command that is ended has compared as many backends as it could with one seed.
    waiting = [
        (backend, seed) for seed in plan.seeds for backend in plan.backends if not _completed(plan, backend, seed)
    ]
    side_by_side = min(plan.side_by_side, len(waiting))
    under_way: list[_Process] = []
    try:
        while waiting or under_way:
            while waiting and len(under_way) < side_by_side and ending.reason is None:
                left = None if plan.seconds is None else plan.seconds - (time.monotonic() - begin)
                under_way.append(_start(plan, *waiting.pop(0), side_by_side, left))
            if ending.reason is not None:
                _end(under_way)
                for backend, seed in waiting:
                    _never_begun(plan, backend, seed, ending.reason)
                waiting = []
            for item in [item for item in under_way if item.process.poll() is not None]:
                under_way.remove(item)
                run = _result(item, ending.reason)
                progress(f"train {item.backend} seed {item.seed} {run.status} after {run.steps} steps")
                reported = 0.0
            for item in under_way:
                if (said := _last_line(item)) != item.said:
                    item.said = said
                    progress(f"train {item.backend} seed {item.seed} {said}")
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                keep(_report(plan, story, machine))
            time.sleep(POLL_SECONDS)
    finally:
        for item in under_way:
            _kill(item)
    return _report(plan, story, machine)


def write(report: TrainingReport, path: Path) -> None:
    """Write a report whole or not at all, after checking that it keeps the contract."""
    text = report.dumps()
    TrainingReport.loads(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace_text(path, text + "\n")


def _story(plan: Plan) -> Story:
    """That of the directory, which begins with it."""
    path = plan.directory / STORY
    if not path.exists():
        plan.directory.mkdir(parents=True, exist_ok=True)
        story = Story(plan.name, datetime.now(UTC).isoformat(timespec="seconds"), plan.setup)
        files.replace_text(path, codec.dumps(codec.encode(story)))
        return story
    if not plan.resume:
        raise InputError(
            f"{plan.directory} holds runs already; --resume goes on with them, or name another --directory"
        )
    try:
        story = codec.decode(Story, codec.loads(path.read_text()))
    except ContractError as error:
        raise InputError(f"{path}: {error}") from error
    _check_same(plan, str(plan.directory), story)
    return story


def _check_same(plan: Plan, where: str, story: Story) -> None:
    """Raise InputError where what is there was trained under another setup than the plan's."""
    there, asked = _flat(codec.encode(story)), _flat(codec.encode(Story(plan.name, story.created_at, plan.setup)))
    derived = {"setup.model.parameters"}
    different = sorted(key for key in (there.keys() | asked.keys()) - derived if there.get(key) != asked.get(key))
    if different:
        key = different[0]
        raise InputError(f"{where} holds runs with {key} = {there.get(key)}, not {asked.get(key)}")


def _check_earlier(plan: Plan, path: str, report: TrainingReport, machine: Environment) -> None:
    _check_same(plan, path, Story(report.name, report.created_at, report.setup))
    there = None if report.environment is None else report.environment.hardware
    if there != machine.hardware:
        raise InputError(f"{path} holds runs of {there or 'unknown hardware'}, and this is {machine.hardware}")


def _take(plan: Plan, report: TrainingReport) -> None:
    """Keep the finished runs of a report in folders of their own, where there is nothing of them yet."""
    for run in report.runs:
        folder = _folder(plan, run.backend, run.seed)
        if run.status in FINISHED and files.load_run(folder) is None:
            folder.mkdir(exist_ok=True)
            files.save_run(folder, run)


def _flat(value: object, path: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {path: value}
    return {key: leaf for name, item in value.items() for key, leaf in _flat(item, f"{path}.{name}".strip(".")).items()}


def _folder(plan: Plan, backend: str, seed: int) -> Path:
    return plan.directory / f"{backend}-seed{seed}"


def _completed(plan: Plan, backend: str, seed: int) -> bool:
    run = files.load_run(_folder(plan, backend, seed))
    return run is not None and run.status in FINISHED


def _start(plan: Plan, backend: str, seed: int, side_by_side: int, seconds: float | None) -> _Process:
    folder = _folder(plan, backend, seed)
    folder.mkdir(exist_ok=True)
    settings = RunSettings(
        name=plan.name,
        setup=plan.setup,
        backend=backend,
        entry=plan.backends[backend],
        seed=seed,
        device=plan.device,
        folder=str(folder),
        captures=str(plan.directory / CAPTURES),
        side_by_side=side_by_side + plan.shared_with,
        threads=max(1, available_threads() // side_by_side),
        seconds=seconds,
        checkpoint_every=plan.checkpoint_every,
    )
    file = folder / files.SETTINGS
    files.replace_text(file, codec.dumps(codec.encode(settings)))
    with (folder / files.LOG).open("ab") as log:
        command = [sys.executable, "-m", "gprojci_suite.training.worker", str(file), str(os.getpid())]
        # A session of its own: Ctrl-C is for the parent, which asks the runs to end.
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    return _Process(backend, seed, folder, process)


def _end(under_way: Sequence[_Process]) -> None:
    for item in under_way:
        item.process.terminate()
    deadline = time.monotonic() + PATIENCE_SECONDS
    for item in under_way:
        try:
            item.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _kill(item)


def _kill(item: _Process) -> None:
    if item.process.poll() is None:
        item.process.kill()
        item.process.wait()


def _result(item: _Process, reason: str | None) -> TrainingRun:
    """What a process that has ended left behind; one that died is `failed`, its last checkpoint what there is of it.

    `reason` is why the command ended its runs: of that they know the signal alone.
    """
    run = files.load_run(item.folder)
    status = item.process.returncode
    if run is not None and run.detail != NO_END and status == 0:
        if run.status == "ended_early" and reason is not None:
            run = replace(run, detail=reason)
            files.save_run(item.folder, run)
        return run
    detail = f"the process ended with status {status}: {_tail(item.folder)}"
    if run is None:
        run = not_trained(item.backend, item.seed, "failed", detail)
    else:
        run = replace(run, status="failed", detail=detail)
    files.save_run(item.folder, run)
    return run


def _never_begun(plan: Plan, backend: str, seed: int, reason: str) -> None:
    folder = _folder(plan, backend, seed)
    if files.load_run(folder) is None:
        folder.mkdir(exist_ok=True)
        files.save_run(folder, not_trained(backend, seed, "ended_early", f"{reason} before it began"))


def _report(plan: Plan, story: Story, machine: Environment) -> TrainingReport:
    """Of every run that the directory holds, also those of other commands."""
    report = TrainingReport(
        kind=KIND,
        name=story.name,
        created_at=story.created_at,
        repro=plan.repro,
        ruler=identity.ruler(),
        environment=machine,
        setup=story.setup,
        runs=tuple(sorted(_runs(plan.directory), key=lambda run: (run.backend, run.seed))),
    )
    report.check("report")
    return report


def _runs(directory: Path) -> Iterator[TrainingRun]:
    for path in sorted(directory.glob(f"*/{files.RUN}")):
        run = files.load_run(path.parent)
        if run is not None:
            yield run


def _last_line(item: _Process) -> str:
    return _tail(item.folder).rstrip().rpartition("\n")[2]


def _tail(folder: Path) -> str:
    """The last line that a run's process said, and below it the last lines."""
    with (folder / files.LOG).open("rb") as log:
        begin = max(0, log.seek(0, 2) - TAIL_BYTES)
        log.seek(begin)
        lines = log.read().decode(errors="replace").splitlines()[1 if begin else 0 :]
    return "\n".join([*lines[-1:], *lines]) or "it said nothing"
