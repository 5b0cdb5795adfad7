"""The command gprojci-suite: list what there is, bench backends by hand, run a worker's spec."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from gprojci_suite import __version__
from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.spec import LimitsSpec, RunSpec, SubjectSpec, ThroughputSpec
from gprojci_suite.contract.vocabulary import DEVICES, SUITES

FINE, BACKEND_FAILED, USAGE, INFRASTRUCTURE = 0, 1, 2, 3


class UsageError(ValueError):
    """The command line asks for something that cannot be; the message is one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns 0 when all is well, 1 when a backend failed, 2 for usage or input, 3 for the machine."""
    options = _parser().parse_args(arguments)
    # torch is imported only now, so that --help answers at once.
    from gprojci_suite.environment import EnvironmentFault
    from gprojci_suite.inputs import InputError
    from gprojci_suite.peers import UnknownPeer

    try:
        return int(options.command(options))
    except (UsageError, ContractError, InputError, UnknownPeer) as error:
        print(f"gprojci-suite: {error}", file=sys.stderr)
        return USAGE
    except (EnvironmentFault, OSError) as error:
        print(f"gprojci-suite: {error}", file=sys.stderr)
        return INFRASTRUCTURE
    except KeyboardInterrupt:
        print("gprojci-suite: interrupted", file=sys.stderr)
        return INFRASTRUCTURE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gprojci-suite",
        description="Accuracy and speed of attention backends, against float64 and beside their peers.",
        epilog="Exit status: 0 fine, 1 a requested backend failed, 2 wrong usage or input, 3 the machine is at fault.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="backends with the reason why one cannot run here, inputs, metrics")
    listing.add_argument("--device", choices=DEVICES, default="cpu", help="device to ask the backends about")
    listing.set_defaults(command=_list)

    bench = commands.add_parser("bench", help="measure backends and print a table")
    bench.add_argument("--backends", default="", metavar="A,B", help="peers, and names given by --backend-entry")
    bench.add_argument(
        "--backend-entry",
        action="append",
        default=[],
        metavar="NAME=MODULE:CALLABLE",
        help="measure a callable importable from here; may be repeated",
    )
    bench.add_argument(
        "--inputs", default="", metavar="NAME|FILE[,…]", help="input sets by name, file, content hash or synthetic:…"
    )
    bench.add_argument("--input-directory", metavar="DIR", help="directory with further input sets")
    bench.add_argument(
        "--suites", default="accuracy", metavar="A,B", help=f"of {', '.join(SUITES)} (default: accuracy)"
    )
    bench.add_argument("--device", choices=DEVICES, default="cpu", help="device to measure on (default: cpu)")
    bench.add_argument("--shapes", default="", metavar="BxHxSxD[,…]", help="shapes to time (default: the inputs)")
    bench.add_argument("--full-mask", action="store_true", help="time shapes without the causal mask")
    bench.add_argument("--anchor", metavar="NAME", help="backend that times are divided by (default: the first peer)")
    bench.add_argument("--pairs", type=int, default=20, help="interleaved pairs (default: 20)")
    bench.add_argument(
        "--max-pairs", type=int, default=80, help="pairs when the interval does not decide (default: 80)"
    )
    bench.add_argument("--margin", type=float, default=0.1, help="ratio minus one to decide against (default: 0.1)")
    bench.add_argument("--seed", type=int, default=0, help="seed of tensors, order and bootstrap (default: 0)")
    bench.add_argument("--call-seconds", type=float, default=120.0, help="longest call of a backend (default: 120)")
    bench.add_argument("--json", metavar="OUT", help="write the report here (see CONTRACT.md)")
    bench.set_defaults(command=_bench)

    run = commands.add_parser("run", help="run a worker's spec; exits 0 when the report is written")
    run.add_argument("spec", metavar="SPEC", help="JSON file (see CONTRACT.md)")
    run.add_argument("report", metavar="REPORT", help="file to write")
    run.set_defaults(command=_run)
    return parser


def _list(options: argparse.Namespace) -> int:
    from gprojci_suite import environment, inputs, metrics, peers

    environment.check_device(options.device)
    case = peers.Case(1, 4, 4, 1024, 1024, 64, True, "bfloat16")
    names = peers.names()
    print(f"backends (on {options.device}):")
    for name in names:
        reason = peers.get(name).supported(case, options.device)
        state = "runs here" if reason is None else f"cannot run here: {reason}"
        print(f"  {name:<22} {state}\n  {'':<22}   {peers.description(name)}")
    print("inputs:")
    for name in inputs.bundled_names():
        found = inputs.load(name)
        layers = ", ".join(f"{layer} ({t.q.shape[1]} heads)" for layer, t in found.layers.items())
        print(f"  {name:<22} {found.content_hash()[:19]}…  {layers}; step {found.provenance.get('step', '?')}")
    print(f"  {'synthetic:offset':<22} synthetic:offset?ratio=300&logit_std=16&seed=1, all parameters optional")
    print(f"  {'synthetic:random':<22} synthetic:random?heads=4&seq=1024&head_dim=64, all parameters optional")
    print("metrics:")
    for name in metrics.names():
        metric = metrics.get(name)
        print(f"  {name:<22} {metric.UNIT}, better: {metric.BETTER}")
    return FINE


def _bench(options: argparse.Namespace) -> int:
    from gprojci_suite import table
    from gprojci_suite.progress import ProgressBar
    from gprojci_suite.run import run, write

    spec = bench_spec(options)
    with ProgressBar(sys.stderr) as bar:
        report = run(spec, bar.step)
    print(table.render(report))
    if options.json:
        write(report, Path(options.json))
        print(f"report: {options.json}")
    return _status(report)


def bench_spec(options: argparse.Namespace) -> RunSpec:
    """The spec of a bench command; raises UsageError or ContractError."""
    entries = {}
    for text in options.backend_entry:
        match = re.fullmatch(r"([a-z0-9][a-z0-9._-]*)=([\w.]+:[\w.]+)", text)
        if match is None:
            raise UsageError(f"--backend-entry {text}: must be NAME=module:callable")
        entries[match[1]] = match[2]
    names = _words(options.backends) or list(entries)
    if not names:
        raise UsageError("--backends names nothing to measure; `gprojci-suite list` shows what there is")
    wanted = _words(options.suites)
    unknown = [suite for suite in wanted if suite not in SUITES]
    if unknown:
        raise UsageError(f"--suites {unknown[0]}: known are {', '.join(SUITES)}")
    suites = [suite for suite in SUITES if suite in wanted]
    chosen = [name for name in names if name not in entries]
    inputs = _words(options.inputs)
    shapes = _words(options.shapes) or inputs
    if "throughput" in suites and not shapes:
        raise UsageError("--suites throughput needs --shapes or --inputs")
    if "accuracy" in suites and not inputs:
        raise UsageError("--suites accuracy needs --inputs")
    anchor = options.anchor or (chosen[0] if chosen else None)
    subjects = [
        SubjectSpec(name, "head", entries[name], sys.executable, site="", commit="local", build_key="local")
        for name in names
        if name in entries
    ]
    timing = ThroughputSpec(
        tuple(shapes), not options.full_mask, options.pairs, options.max_pairs, 0.95, options.margin
    )
    timing.check("throughput")
    limits = LimitsSpec(options.call_seconds, max(options.call_seconds, 120.0))
    limits.check("limits")
    spec = RunSpec(
        schema_version=1,
        device=options.device,
        seed=options.seed,
        suites=tuple(suites),
        subjects=tuple(subjects),
        peers=tuple(chosen),
        anchor=anchor if "throughput" in suites else None,
        inputs=tuple(inputs),
        input_directory=options.input_directory,
        throughput=timing if "throughput" in suites else None,
        limits=limits,
    )
    spec.check("spec")
    return spec


def _run(options: argparse.Namespace) -> int:
    from gprojci_suite.run import run, write

    spec = RunSpec.loads(Path(options.spec).read_text())
    write(run(spec, lambda line: print(line, flush=True)), Path(options.report))
    return FINE


def _status(report: Report) -> int:
    return FINE if all(entry.status == "ok" for entry in report.backends) else BACKEND_FAILED


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
