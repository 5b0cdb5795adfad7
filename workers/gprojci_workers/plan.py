"""What is to be measured: the manifests of both commits made into a spec for the ruler.

Inputs, shapes and peers are those of the base's manifest with the head's added, so that a commit cannot drop the input
that it fails on; how it is built and which backends it offers is the head's own affair.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gprojci_suite.contract import ManifestError, RunSpec
from gprojci_suite.contract import manifest as manifest_format
from gprojci_suite.contract.manifest import Manifest
from gprojci_suite.contract.spec import InvariantsSpec, LimitsSpec, SubjectSpec, ThroughputSpec
from gprojci_suite.contract.vocabulary import PROCESSES, STEP_MODELS, Device, SubjectRevision, Suite
from gprojci_workers.build import Built
from gprojci_workers.checkout import MANIFEST
from gprojci_workers.failure import AttemptFailed

SEED = 0
TO_REPORT = 60.0
"""Seconds of an attempt's hard limit that are left to the ruler to start and to report what it has."""


def read_manifest(text: str | None, *, revision: str, sha: str, device: Device) -> Manifest:
    """Parses a commit's manifest.

    Raises:
        AttemptFailed: `build_error` naming the line, or saying that there is no manifest.
    """
    if text is None:
        raise AttemptFailed(
            "build_error",
            f"{revision} {sha[:10]} has no {MANIFEST}; the README's 'Use it on your own repository' says how",
        )
    try:
        return manifest_format.parse(text, device=device)
    except ManifestError as error:
        raise AttemptFailed("build_error", f"{MANIFEST} of {revision} {sha[:10]}: {error}") from error


def make_spec(
    head: Manifest,
    base: Manifest | None,
    builds: dict[SubjectRevision, Built],
    commits: dict[SubjectRevision, str],
    *,
    device: Device,
    input_directory: Path | None,
    seconds: float,
    effort: int = 1,
) -> RunSpec:
    """The spec of one session.

    Args:
        builds, commits: by revision, `head` and (where there is one) `base`.
        seconds: what is left of the attempt's hard limit; the session ends a little earlier, so that it can report.
        effort: how many times the manifest's pairs are measured.
    """
    policy = base or head
    manifests: tuple[tuple[SubjectRevision, Manifest | None], ...] = (("head", head), ("base", base))
    subjects = [
        SubjectSpec(
            backend=name,
            revision=revision,
            entry=backend.entry,
            python=str(builds[revision].python),
            site=str(builds[revision].site),
            commit=commits[revision],
            build_key=builds[revision].key,
            build_seconds=None if builds[revision].reused else builds[revision].seconds,
        )
        for revision, manifest in manifests
        if manifest is not None and revision in builds
        for name, backend in manifest.backends.items()
    ]
    timing = policy.throughput
    shapes = _union(timing.shapes, head.throughput.shapes)
    asked = {*timing.step_models, *head.throughput.step_models}
    models = tuple(model for model in STEP_MODELS if model in asked)
    inputs = _union(policy.accuracy.inputs, head.accuracy.inputs)
    wanted: tuple[tuple[Suite, list[str]], ...] = (("accuracy", inputs), ("throughput", shapes))
    accuracy = (policy.accuracy, head.accuracy)
    invariants = InvariantsSpec(
        shapes=tuple(_union(*(settings.shapes for settings in accuracy))),
        repeats=max(settings.repeats for settings in accuracy),
    )
    wanted += (
        ("symmetry", [*inputs, *invariants.shapes] if any(settings.symmetry for settings in accuracy) else []),
        ("determinism", [*inputs, *invariants.shapes] if any(settings.determinism for settings in accuracy) else []),
        ("surface", ["synthetic:offset"] if any(settings.surface for settings in accuracy) else []),
        ("step", list(models)),
    )
    suites = [suite for suite, cases in wanted if cases]
    if not suites:
        raise AttemptFailed(
            "build_error",
            f"{MANIFEST} names neither [accuracy] inputs nor [throughput] shapes or step_models: nothing to measure",
        )
    peers = _union(policy.accuracy.peers, timing.peers, head.accuracy.peers, head.throughput.peers)
    kernel = policy.gate.every_limit("kernel_time_increase", "kernel_overhead_ceiling")
    step = policy.gate.every_limit("step_overhead_increase", "step_overhead_ceiling")
    return RunSpec(
        schema_version=1,
        device=device,
        seed=SEED,
        suites=tuple(suites),
        subjects=tuple(subjects),
        peers=tuple(peer for peer in peers if peer != timing.anchor),
        anchor=timing.anchor,
        inputs=tuple(inputs),
        input_directory=str(input_directory) if input_directory else None,
        throughput=ThroughputSpec(
            shapes=tuple(shapes),
            pairs=timing.pairs * effort,
            max_pairs=timing.max_pairs * effort,
            margin=min(kernel, default=0.1),
            step_models=models,
            step_margin=min(step, default=None),
            processes=timing.processes or min(PROCESSES[device], timing.pairs),
        )
        if shapes or models
        else None,
        invariants=invariants,
        limits=LimitsSpec(
            call_seconds=min(120.0, seconds),
            start_seconds=min(120.0, seconds),
            session_seconds=seconds - min(TO_REPORT, seconds / 10),
        ),
    )


def _union(*lists: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(item for part in lists for item in part))
