"""The spec that is made of two manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from gprojci_suite.contract import RunSpec
from gprojci_suite.contract import manifest as manifests
from gprojci_suite.contract.vocabulary import Device
from gprojci_workers.build import Built
from gprojci_workers.failure import AttemptFailed
from gprojci_workers.plan import make_spec, read_manifest

BASE = """
[backends.gproj]
entry = "gproj:attention"
[accuracy]
inputs = ["late-keybias", "early-rope"]
peers = ["fp32", "sdpa-math"]
[throughput]
anchor = "sdpa-math"
shapes = ["1x4x1024x64"]
[gate]
kernel_time_increase = 0.05
"""
HEAD = """
[backends.gproj]
entry = "gproj:faster"
[backends.zerosum]
entry = "gproj:zerosum"
[accuracy]
inputs = ["synthetic:offset"]
[gate]
kernel_time_increase = 9.0
"""
COMMITS = {"head": "a" * 40, "base": "b" * 40}


def spec_of(head: str, base: str | None, device: Device = "cpu") -> RunSpec:
    revisions = ["head", "base"] if base else ["head"]
    builds = {
        name: Built(name, name, Path(f"/{name}/bin/python"), Path(f"/{name}"), False, 1.0, "") for name in revisions
    }
    parsed = manifests.parse(base, device=device) if base else None
    spec = make_spec(
        manifests.parse(head, device=device), parsed, builds, COMMITS, device=device, input_directory=None, seconds=100
    )
    return RunSpec.loads(spec.dumps())


def test_a_head_cannot_drop_the_inputs_and_limits_of_its_base():
    spec = spec_of(HEAD, BASE)
    assert spec.inputs == ("late-keybias", "early-rope", "synthetic:offset")
    assert (spec.anchor, spec.peers) == ("sdpa-math", ("fp32",))
    assert spec.throughput is not None
    assert (spec.throughput.shapes, spec.throughput.margin) == (("1x4x1024x64",), 0.05)


def test_processes_are_the_bases_or_those_of_the_device():
    assert [spec_of(HEAD, BASE, device).throughput.processes for device in ("cpu", "cuda")] == [1, 5]
    asked = BASE.replace("[gate]", "processes = 8\n[gate]")
    assert spec_of(HEAD, asked, "cuda").throughput.processes == 8
    assert spec_of(HEAD.replace("[gate]", "[throughput]\nprocesses = 1\n[gate]"), asked).throughput.processes == 8
    assert spec_of(HEAD, BASE.replace("[gate]", "pairs = 3\n[gate]"), "cuda").throughput.processes == 3


def test_the_effort_of_a_job_multiplies_the_pairs_of_the_manifest():
    builds = {"head": Built("head", "h", Path("/h/bin/python"), Path("/h"), False, 1.0, "")}
    parsed = manifests.parse(BASE.replace("[gate]", "pairs = 10\nmax_pairs = 30\n[gate]"), device="cpu")
    spec = make_spec(parsed, None, builds, COMMITS, device="cpu", input_directory=None, seconds=100, effort=4)
    assert spec.throughput is not None
    assert (spec.throughput.pairs, spec.throughput.max_pairs) == (40, 120)


def test_build_seconds_are_those_of_builds_that_were_made():
    builds = {
        "head": Built("head", "h", Path("/h/bin/python"), Path("/h"), False, 41.5, ""),
        "base": Built("base", "b", Path("/b/bin/python"), Path("/b"), True, 0.1, ""),
    }
    parsed = [manifests.parse(text, device="cpu") for text in (HEAD, BASE)]
    spec = make_spec(*parsed, builds, COMMITS, device="cpu", input_directory=None, seconds=100)
    assert spec.limits.session_seconds == 90, "it reports before the sandbox kills it"
    found = {(subject.backend, subject.revision): subject.build_seconds for subject in spec.subjects}
    assert found == {("gproj", "head"): 41.5, ("zerosum", "head"): 41.5, ("gproj", "base"): None}


def test_each_revision_brings_its_own_backends():
    assert [
        (subject.backend, subject.revision, subject.entry, subject.commit[0])
        for subject in spec_of(HEAD, BASE).subjects
    ] == [
        ("gproj", "head", "gproj:faster", "a"),
        ("zerosum", "head", "gproj:zerosum", "a"),
        ("gproj", "base", "gproj:attention", "b"),
    ]


def test_without_a_base_the_head_stands_alone():
    spec = spec_of(BASE, None)
    assert {subject.revision for subject in spec.subjects} == {"head"}


def test_a_manifest_that_measures_nothing_is_refused():
    with pytest.raises(AttemptFailed, match="nothing to measure"):
        spec_of('[backends.a]\nentry = "a:b"\n', None)


def test_a_missing_or_broken_manifest_says_what_to_do():
    with pytest.raises(AttemptFailed, match=r"has no gprojci\.toml"):
        read_manifest(None, revision="head", sha="a" * 40, device="cpu")
    with pytest.raises(AttemptFailed, match="line 2"):
        read_manifest("[gate]\nnonsense = 1\n", revision="head", sha="a" * 40, device="cpu")


def test_symmetry_and_determinism_run_only_where_a_manifest_says_so() -> None:
    plain = spec_of(HEAD, BASE)
    assert not {"symmetry", "determinism"} & set(plain.suites)
    asked = BASE.replace("[throughput]", 'symmetry = true\nshapes = ["1x1x16384x64"]\nrepeats = 7\n[throughput]')
    spec = spec_of(HEAD, asked)
    assert "symmetry" in spec.suites
    assert "determinism" not in spec.suites
    assert (spec.invariants.shapes, spec.invariants.repeats) == (("1x1x16384x64",), 7)
    assert "determinism" in spec_of(HEAD.replace("[gate]", "determinism = true\n[gate]"), BASE).suites


def test_the_surface_is_measured_only_where_a_manifest_says_so() -> None:
    assert "surface" not in spec_of(HEAD, BASE).suites
    assert "surface" in spec_of(HEAD, BASE.replace("[throughput]", "surface = true\n[throughput]")).suites
    assert "surface" in spec_of(HEAD.replace("[gate]", "surface = true\n[gate]"), BASE).suites


def test_step_models_of_both_manifests_are_trained():
    base = BASE.replace("[gate]", 'step_models = ["tiny"]\n[gate]\nstep_overhead_ceiling = 0.02')
    head = '[backends.gproj]\nentry = "gproj:attention"\n[throughput]\nstep_models = ["450m"]\n'
    spec = spec_of(head, base)
    assert "step" in spec.suites
    assert spec.throughput is not None
    assert spec.throughput.step_models == ("450m", "tiny")
    assert (spec.throughput.margin, spec.throughput.step_margin) == (0.05, 0.02)
    alone = spec_of(head, None)
    assert (alone.suites, alone.throughput.shapes, alone.throughput.step_margin) == (("step",), (), None)
