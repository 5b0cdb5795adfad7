"""The command `train`: its options, and what they ask for."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.training import (
    TrainingModel,
    TrainingOptimizer,
    TrainingReport,
    TrainingSetup,
    check_name,
)
from gprojci_suite.contract.vocabulary import DEVICES, POSITIONS, PROJECTIONS
from gprojci_suite.options import add_backends, entries_of, words_of

if TYPE_CHECKING:
    from gprojci_suite.training import suite

NOT_REPEATED = {"help", "directory", "json", "resume", "with_runs_of", "seconds", "shared_with", "command"}
"""Options that change where and how far, and not what is trained."""


def add(parser: argparse.ArgumentParser) -> None:
    """Give the parser of `train` its options; the defaults are the recipe behind late-keybias."""
    parser.add_argument("name", metavar="NAME", help="what the setup is called")
    runs = parser.add_argument_group("runs")
    add_backends(runs, "train with")
    runs.add_argument("--seeds", default="0", metavar="0,1", help="seeds of weights and data (default: 0)")
    runs.add_argument("--directory", required=True, metavar="DIR", help="where each run has its folder")
    runs.add_argument("--json", metavar="OUT", help="write the report here, also while runs are under way")
    runs.add_argument("--resume", action="store_true", help="go on with the runs in the directory")
    runs.add_argument(
        "--with-runs-of",
        action="append",
        default=[],
        metavar="REPORT",
        help="take the finished runs of an earlier report of the same setup; may be repeated",
    )
    runs.add_argument("--device", choices=DEVICES, default="cpu", help="device to train on (default: cpu)")
    runs.add_argument(
        "--side-by-side", type=int, default=1, metavar="N", help="runs at a time; more than 1 are not timed"
    )
    runs.add_argument(
        "--shared-with", type=int, default=0, metavar="N", help="processes that others run on the device meanwhile (0)"
    )
    runs.add_argument(
        "--seconds", type=float, metavar="S", help="end every run after S seconds and report what there is"
    )
    runs.add_argument("--steps", type=int, default=4000, help="steps of a run (default: 4000)")
    runs.add_argument("--measure-every", type=int, default=100, metavar="N", help="steps between measurements (100)")
    runs.add_argument("--checkpoint-every", type=int, default=500, metavar="N", help="steps between checkpoints (500)")
    runs.add_argument("--capture-at", type=float, metavar="X", help="error of dq, a fraction, that writes an input set")
    model = parser.add_argument_group("model and data")
    model.add_argument("--layers", type=int, default=8, help="blocks (8)")
    model.add_argument("--width", type=int, default=512, help="residual stream (512)")
    model.add_argument("--heads", type=int, default=8, help="heads of each layer (8)")
    model.add_argument("--sequence", type=int, default=1024, help="tokens of a sequence (1024)")
    model.add_argument("--batch", type=int, default=16, help="sequences of a step (16)")
    model.add_argument("--data", choices=("library", "recall"), default="library", help="what is learned (library)")
    model.add_argument("--positions", choices=POSITIONS, default="learned", help="learned or rotary (learned)")
    model.add_argument("--biases", default="q,k,v", metavar="q,k,v", help="projections with a bias, or none (q,k,v)")
    model.add_argument(
        "--key-bias-std", type=float, default=0.0, metavar="X", help="of k's biases before the first step (0)"
    )
    model.add_argument("--qk-norm", action="store_true", help="RMSNorm on q and k")
    model.add_argument("--qk-clip", type=float, metavar="X", help="largest logit that is let be")
    model.add_argument("--softmax-temperature", type=float, default=1.0, metavar="T", help="divides the logits (1)")
    model.add_argument("--compile", action="store_true", help="torch.compile for all but attention and the optimisers")
    optimizer = parser.add_argument_group("optimisers")
    optimizer.add_argument("--muon-rate", type=float, default=0.02, metavar="X", help="of hidden matrices (0.02)")
    optimizer.add_argument("--no-muon", action="store_true", help="AdamW for the hidden matrices too")
    optimizer.add_argument("--momentum", type=float, default=0.95, metavar="X", help="of Muon (0.95)")
    optimizer.add_argument("--adamw-rate", type=float, default=0.003, metavar="X", help="of all others (0.003)")
    optimizer.add_argument("--bias-rate", type=float, metavar="X", help="of the biases, where it is another")
    optimizer.add_argument("--weight-decay", type=float, default=0.0, metavar="X", help="of both optimisers (0)")
    optimizer.add_argument("--warm-up", type=int, default=0, metavar="N", help="steps of linear warm-up (0)")
    parser.set_defaults(command=_train(parser))


def _train(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    def command(options: argparse.Namespace) -> int:
        from gprojci_suite.ending import Ending
        from gprojci_suite.progress import ProgressBar
        from gprojci_suite.training import suite, table

        plan = _plan(options, command_line(parser, options))
        out = Path(options.json) if options.json else None

        def write(report: TrainingReport) -> None:
            if out is not None:
                suite.write(report, out)

        with Ending(options.seconds).on_signals() as ending:
            with ProgressBar(sys.stderr) as bar:
                report = suite.train(plan, bar.step, ending, write)
            write(report)
            print(table.render(report))
            if out is not None:
                print(f"report: {out}")
            fine = all(run.status not in ("failed", "unsupported") for run in report.runs)
            return ending.exit_status or (0 if fine else 1)

    return command


def command_line(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """The command that trains the same, without what tells where and how far."""
    words = ["gprojci-suite", "train", options.name]
    for action in parser._actions:
        value = getattr(options, action.dest, None)
        if action.dest in NOT_REPEATED or not action.option_strings or value == action.default:
            continue
        for item in value if isinstance(value, list) else [value]:
            words += [action.option_strings[-1]] if item is True else [action.option_strings[-1], str(item)]
    return shlex.join([*words, "--directory", options.name])


def setup(options: argparse.Namespace) -> TrainingSetup:
    """What all runs have in common; raises ContractError naming the option."""
    from gprojci_suite.training import data, model

    biases = () if options.biases == "none" else tuple(words_of(options.biases))
    for name in biases:
        if name not in PROJECTIONS:
            raise ContractError("--biases", f"{name!r} is none of q, k and v")
    shape = TrainingModel(
        layers=options.layers,
        width=options.width,
        heads=options.heads,
        sequence=options.sequence,
        positions=options.positions,
        biases=tuple(name for name in PROJECTIONS if name in biases),
        qk_norm=options.qk_norm,
        qk_clip=options.qk_clip,
        softmax_temperature=options.softmax_temperature,
        key_bias_std=options.key_bias_std,
        compiled=options.compile,
    )
    shape.check("model")
    optimizer = TrainingOptimizer(
        muon_rate=None if options.no_muon else options.muon_rate,
        adamw_rate=options.adamw_rate,
        bias_rate=options.bias_rate,
        momentum=options.momentum,
        weight_decay=options.weight_decay,
        warm_up=options.warm_up,
    )
    optimizer.check("optimizer")
    found = TrainingSetup(
        model=replace(shape, parameters=model.parameter_count(shape)),
        data=data.load(options.data).describe(options.batch),
        optimizer=optimizer,
        steps=options.steps,
        measure_every=options.measure_every,
        capture_threshold=options.capture_at,
    )
    found.check("setup")
    return found


def _earlier(path: str) -> TrainingReport:
    try:
        return TrainingReport.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, ContractError) as error:
        raise ContractError("--with-runs-of", f"{path} is no readable report of training runs: {error}") from error


def _plan(options: argparse.Namespace, repro: str) -> "suite.Plan":
    from gprojci_suite import environment, peers
    from gprojci_suite.training import optimizers, suite

    check_name(options.name, "NAME")
    entries = entries_of(options.backend_entry)
    backends = {name: entries.get(name) for name in words_of(options.backends) or entries}
    if not backends:
        raise ContractError("--backends", "names nothing to train; `gprojci-suite list` shows what there is")
    for name, entry in backends.items():
        if entry is None:
            peers.check(name)
    seeds = words_of(options.seeds)
    if not seeds or not all(re.fullmatch(r"\d{1,9}", seed) for seed in seeds):
        raise ContractError("--seeds", f"must be whole numbers from 0, got {options.seeds!r}")
    least = {"--side-by-side": 1, "--shared-with": 0, "--checkpoint-every": 1}
    for name, value in least.items():
        if getattr(options, name.strip("-").replace("-", "_")) < value:
            raise ContractError(name, f"must be at least {value}")
    if options.seconds is not None and not 0 < options.seconds < float("inf"):
        raise ContractError("--seconds", "must be a finite number above zero")
    environment.check_device(options.device)
    asked = setup(options)
    optimizers.check(asked.optimizer)
    return suite.Plan(
        name=options.name,
        setup=asked,
        backends=backends,
        seeds=tuple(dict.fromkeys(map(int, seeds))),
        directory=Path(options.directory),
        device=options.device,
        side_by_side=options.side_by_side,
        shared_with=options.shared_with,
        seconds=options.seconds,
        checkpoint_every=options.checkpoint_every,
        resume=options.resume,
        earlier={path: _earlier(path) for path in options.with_runs_of},
        repro=repro,
    )
