"""The command gprojci-suite: list what there is, bench backends by hand, run a worker's spec."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gprojci_suite import __version__
from gprojci_suite.contract.errors import ContractError
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.spec import InvariantsSpec, LimitsSpec, RunSpec, SubjectSpec, ThroughputSpec
from gprojci_suite.contract.vocabulary import DEVICES, PROCESSES, STEP_MODELS, SUITES
from gprojci_suite.ending import Ending
from gprojci_suite.options import UsageError, add_backends, entries_of, words_of
from gprojci_suite.training import arguments

FINE, BACKEND_FAILED, USAGE, INFRASTRUCTURE = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns 0 when all is well, 1 when a backend failed, 2 for usage or input, 3 for the machine.

    Where a signal ended the measuring, 128 and its number.
    """
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
        epilog="Exit status: 0 fine, 1 a requested backend failed, 2 wrong usage or input, 3 the machine is at fault, "
        "130 or 143 ended by Ctrl-C or SIGTERM with the report of what there was.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="backends with the reason why one cannot run here, inputs, metrics")
    listing.add_argument("--device", choices=DEVICES, default="cpu", help="device to ask the backends about")
    listing.set_defaults(command=_list)

    bench = commands.add_parser("bench", help="measure backends and print a table")
    add_backends(bench, "measure")
    bench.add_argument(
        "--inputs", default="", metavar="NAME|FILE[,…]", help="input sets by name, file, content hash or synthetic:…"
    )
    bench.add_argument("--input-directory", metavar="DIR", help="directory with further input sets")
    bench.add_argument(
        "--suites", default="accuracy", metavar="A,B", help=f"of {', '.join(SUITES)} (default: accuracy)"
    )
    bench.add_argument("--device", choices=DEVICES, default="cpu", help="device to measure on (default: cpu)")
    bench.add_argument("--shapes", default="", metavar="BxHxSxD[,…]", help="shapes to time (default: the inputs)")
    bench.add_argument("--full-mask", action="store_true", help="shapes without the causal mask")
    bench.add_argument(
        "--invariant-shapes",
        default="",
        metavar="BxHxSxD[,…]",
        help="shapes of symmetry and determinism beside the inputs, also too long for float64",
    )
    bench.add_argument("--repeats", type=int, default=5, help="computations of each determinism case (default: 5)")
    bench.add_argument(
        "--step-models", default="", metavar="A,B", help=f"of {', '.join(STEP_MODELS)}: models that step trains"
    )
    bench.add_argument("--anchor", metavar="NAME", help="backend that times are divided by (default: the first peer)")
    bench.add_argument("--pairs", type=int, default=20, help="interleaved pairs (default: 20)")
    bench.add_argument(
        "--max-pairs", type=int, default=80, help="pairs when the interval does not decide (default: 80)"
    )
    defaults = ", ".join(f"{count} on {device}" for device, count in PROCESSES.items())
    bench.add_argument(
        "--processes",
        type=int,
        metavar="P",
        help=f"processes of each compared backend to spread the pairs over (default: {defaults}, at most --pairs)",
    )
    bench.add_argument("--margin", type=float, default=0.1, help="ratio minus one to decide against (default: 0.1)")
    bench.add_argument("--seed", type=int, default=0, help="seed of tensors, order and bootstrap (default: 0)")
    bench.add_argument("--call-seconds", type=float, default=120.0, help="longest call of a backend (default: 120)")
    bench.add_argument(
        "--seconds", type=float, metavar="S", help="begin nothing more after S seconds and report what there is"
    )
    bench.add_argument("--json", metavar="OUT", help="write the report here (see CONTRACT.md)")
    bench.set_defaults(command=_bench)

    again = commands.add_parser("reproduce", help="check the stock backends against what an H200 printed")
    again.add_argument("--backends", default="", metavar="A,B", help="of the expected table (default: all of it)")
    again.add_argument("--device", choices=DEVICES, default="cpu", help="device to measure on (default: cpu)")
    again.add_argument("--call-seconds", type=float, default=120.0, help="longest call of a backend (default: 120)")
    again.add_argument("--json", metavar="OUT", help="write the report here (see CONTRACT.md)")
    again.set_defaults(command=_reproduce)

    look = commands.add_parser("inspect", help="what makes an input set hard, and the errors to expect on it")
    look.add_argument("input", metavar="FILE|NAME", help="input set by name, file, content hash or synthetic:…")
    look.add_argument("--input-directory", metavar="DIR", help="directory with further input sets")
    look.add_argument("--html", metavar="OUT", help="write the pictures to this self-contained page")
    look.set_defaults(command=_inspect)

    words = commands.add_parser("describe", help="an input set as a report has it: shapes, statistics, hash, as JSON")
    words.add_argument("input", metavar="FILE|NAME", help="input set by name, file, content hash or synthetic:…")
    words.add_argument("--input-directory", metavar="DIR", help="directory with further input sets")
    words.set_defaults(command=_describe)

    two = commands.add_parser("compare", help="what became worse from report A to report B; exits 1 when anything did")
    two.add_argument("first", metavar="A.json", help="report of bench or run")
    two.add_argument("second", metavar="B.json", help="another one, of the same hardware class and inputs")
    two.add_argument("--margin", type=float, default=0.03, help="accepted increase of times (default: 0.03)")
    two.add_argument("--error-margin", type=float, default=0.05, help="accepted increase of errors (default: 0.05)")
    two.set_defaults(command=_compare)

    training = commands.add_parser("train", help="train small transformers that differ in the attention backend alone")
    arguments.add(training)

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
    for name in peers.preprocessing_names():
        print(f"  {name + '+PEER':<22} before any of them\n  {'':<22}   {peers.description(name)}")
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
    with Ending(spec.limits.session_seconds).on_signals() as ending:
        with ProgressBar(sys.stderr) as bar:
            report = run(spec, bar.step, ending)
        if options.json:  # before anything is printed: whoever reads that may have been ended too
            write(report, Path(options.json))
        print(table.render(report))
        if options.json:
            print(f"report: {options.json}")
        return ending.exit_status or _status(report)


def _reproduce(options: argparse.Namespace) -> int:
    from gprojci_suite import reproduce, table
    from gprojci_suite.progress import ProgressBar
    from gprojci_suite.run import write

    LimitsSpec(options.call_seconds).check("limits")
    rows = reproduce.choose(reproduce.expected(), words_of(options.backends))
    with Ending().on_signals() as ending:
        with ProgressBar(sys.stderr) as bar:
            report, checks = reproduce.measure(rows, options.device, options.call_seconds, bar.step, ending)
        if options.json:
            write(report, Path(options.json))
        print(table.reproduction(checks))
        if options.json:
            print(f"report: {options.json}")
        return ending.exit_status or (FINE if reproduce.passed(checks) else BACKEND_FAILED)


def bench_spec(options: argparse.Namespace) -> RunSpec:
    """The spec of a bench command; raises UsageError or ContractError."""
    entries = entries_of(options.backend_entry)
    names = words_of(options.backends) or list(entries)
    if not names:
        raise UsageError("--backends names nothing to measure; `gprojci-suite list` shows what there is")
    wanted = words_of(options.suites)
    unknown = [suite for suite in wanted if suite not in SUITES]
    if unknown:
        raise UsageError(f"--suites {unknown[0]}: known are {', '.join(SUITES)}")
    suites = [suite for suite in SUITES if suite in wanted]
    chosen = [name for name in names if name not in entries]
    inputs = words_of(options.inputs)
    shapes = words_of(options.shapes) or inputs
    if "throughput" in suites and not shapes:
        raise UsageError("--suites throughput needs --shapes or --inputs")
    if "accuracy" in suites and not inputs:
        raise UsageError("--suites accuracy needs --inputs")
    invariants = InvariantsSpec(tuple(words_of(options.invariant_shapes)), not options.full_mask, options.repeats)
    invariants.check("invariants")
    for suite in ("symmetry", "determinism"):
        if suite in suites and not (inputs or invariants.shapes):
            raise UsageError(f"--suites {suite} needs --inputs or --invariant-shapes")
    models = words_of(options.step_models)
    for name in models:
        if name not in STEP_MODELS:
            raise UsageError(f"--step-models {name}: known are {', '.join(STEP_MODELS)}")
    if "step" in suites and not models:
        raise UsageError("--suites step needs --step-models")
    timed = "throughput" in suites or "step" in suites
    anchor = options.anchor or (chosen[0] if chosen else None)
    subjects = [
        SubjectSpec(name, "head", entries[name], sys.executable, site="", commit="local", build_key="local")
        for name in names
        if name in entries
    ]
    processes = options.processes
    if processes is None:
        processes = max(1, min(PROCESSES[options.device], options.pairs))
    timing = ThroughputSpec(
        tuple(shapes),
        not options.full_mask,
        options.pairs,
        options.max_pairs,
        0.95,
        options.margin,
        step_models=tuple(model for model in STEP_MODELS if model in models),
        processes=processes,
    )
    timing.check("throughput")
    limits = LimitsSpec(options.call_seconds, max(options.call_seconds, 120.0), session_seconds=options.seconds)
    limits.check("limits")
    spec = RunSpec(
        schema_version=1,
        device=options.device,
        seed=options.seed,
        suites=tuple(suites),
        subjects=tuple(subjects),
        peers=tuple(chosen),
        anchor=anchor if timed else None,
        inputs=tuple(inputs),
        input_directory=options.input_directory,
        throughput=timing if timed else None,
        invariants=invariants,
        limits=limits,
    )
    spec.check("spec")
    return spec


def _inspect(options: argparse.Namespace) -> int:
    from gprojci_suite import inputs, inspection, inspection_page
    from gprojci_suite.progress import ProgressBar

    item = inputs.load(options.input, Path(options.input_directory) if options.input_directory else None)
    with ProgressBar(sys.stderr) as bar:
        found = inspection.inspect(item, bar.step)
    print(inspection.render(found))
    if options.html:
        Path(options.html).write_text(inspection_page.page(found), encoding="utf-8")
        print(f"\npictures: {options.html}")
    return FINE


def _describe(options: argparse.Namespace) -> int:
    from gprojci_suite import inputs
    from gprojci_suite.contract import codec

    item = inputs.load(options.input, Path(options.input_directory) if options.input_directory else None)
    print(codec.dumps(codec.encode(item.describe()), indent=1))
    return FINE


def _compare(options: argparse.Namespace) -> int:
    from gprojci_suite import compare, table

    if min(options.margin, options.error_margin) < 0 or max(options.margin, options.error_margin) == float("inf"):
        raise UsageError("--margin and --error-margin must be finite and not below zero")
    first, second = (_report(path) for path in (options.first, options.second))
    try:
        rows = compare.compare(first, second, margin=options.margin, error_margin=options.error_margin)
    except compare.NotComparable as error:
        raise UsageError(f"cannot compare {options.first} with {options.second}: {error}") from error
    print(table.comparison(rows))
    for note in compare.notes(first, second):
        print(f"note: {note}")
    return BACKEND_FAILED if compare.worse(rows) else FINE


def _report(path: str) -> Report:
    try:
        return Report.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, ContractError) as error:
        raise UsageError(f"{path}: not a readable report: {error}") from error


def _run(options: argparse.Namespace) -> int:
    from gprojci_suite.progress import ProgressBar
    from gprojci_suite.run import run, write

    spec = RunSpec.loads(Path(options.spec).read_text())
    with Ending(spec.limits.session_seconds).on_signals() as ending, ProgressBar(sys.stdout) as bar:
        write(run(spec, bar.step, ending), Path(options.report))
        return ending.exit_status or FINE


def _status(report: Report) -> int:
    return FINE if all(entry.status == "ok" for entry in report.backends) else BACKEND_FAILED
