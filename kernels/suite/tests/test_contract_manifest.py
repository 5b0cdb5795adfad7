"""The manifest: device overrides, and errors that name key and line."""

from pathlib import Path

import pytest

from gprojci_suite.contract import ManifestError
from gprojci_suite.contract.manifest import GATE_LIMITS, parse

TEXT = """
[build]
path = "kernels/gproj"

[backends.gproj]
entry = "gproj:attention"

[accuracy]
inputs = ["late-keybias"]

[throughput]
anchor = "fa3"
shapes = ["4x16x4096x128"]
cpu = { anchor = "sdpa-math", shapes = ["1x4x256x64"] }

[gate]
dq_error_ceiling = 0.0035
dq_error_ratio = 1.05

[gate.cpu]
dq_error_ceiling = 1
kernel_time_increase = 0.5
"""


def test_a_device_overrides_its_sections_only() -> None:
    cpu, cuda = parse(TEXT, device="cpu"), parse(TEXT, device="cuda")
    assert (cpu.throughput.anchor, cuda.throughput.anchor) == ("sdpa-math", "fa3")
    assert cpu.gate.limits == {"dq_error_ceiling": 1.0, "dq_error_ratio": 1.05, "kernel_time_increase": 0.5}
    assert cuda.gate.limits == {"dq_error_ceiling": 0.0035, "dq_error_ratio": 1.05}
    assert cpu.build.path == "kernels/gproj"
    assert cpu.backends["gproj"].entry == "gproj:attention"


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("dq_error_ratio", "dq_eror_ratio", 18, "gate.dq_eror_ratio: unknown key; did you mean 'dq_error_ratio'"),
        ("kernel_time_increase", "kernel_tim_increase", 22, "did you mean 'kernel_time_increase'"),
        ("[accuracy]", "[acuracy]", 8, "did you mean 'accuracy'"),
        ("[gate.cpu]", "[gate.gpu]", 20, "gate.gpu: unknown key; did you mean 'cpu'"),
        ("entry =", "entri =", 6, "did you mean 'entry'"),
        ("0.0035", '"low"', 17, "must be a finite number"),
        ("0.0035", "nan", 17, "must be a finite number"),
        ("0.0035", "-1", 17, "must be a finite number"),
        ("0.0035", "true", 17, "must be a finite number"),
        ('["late-keybias"]', '"late-keybias"', 9, "accuracy.inputs: must be a list"),
        ('["late-keybias"]', '["a", "a"]', 9, "lists something twice"),
        ('["late-keybias"]', '[]\nsurface = "yes"', 10, "accuracy.surface: must be true or false"),
        ('"fa3"', "3", 12, "throughput.anchor: must be a non-empty string"),
        ("4x16x4096x128", "4x16x4096", 13, "not of the form"),
        ('"4x16x4096x128"]', '"4x16x4096x128"]\nstep_models = ["450"]', 14, "unknown key; did you mean '450m'"),
        ("kernels/gproj", "../elsewhere", 3, "must stay inside the repository"),
        ("gproj:attention", "gproj.attention", 6, "must have the form module:callable"),
        ("[backends.gproj]\nentry", "[backends.GProj]\nentry", 5, "lower-case"),
        ("dq_error_ratio = 1.05", "dq_error_ratio = ", 18, "not TOML"),
        ("dq_error_ratio = 1.05", 'informative = ["dq_error_rato"]', 18, "did you mean 'dq_error_ratio'"),
        ("dq_error_ratio = 1.05", 'backends = ["gpro"]', 18, "did you mean 'gproj'"),
        ('[build]\npath = "kernels/gproj"', "build = 3", 2, "build: must be a table"),
    ],
)
def test_errors_name_key_and_line(old: str, new: str, line: int, problem: str) -> None:
    assert old in TEXT
    with pytest.raises(ManifestError) as caught:
        parse(TEXT.replace(old, new), device="cpu")
    assert problem in str(caught.value)
    assert caught.value.line == line


def test_the_surface_is_off_unless_asked_for_and_may_differ_by_device() -> None:
    assert not parse(TEXT, device="cuda").accuracy.surface
    asked = TEXT.replace("[throughput]", "surface = true\n[accuracy.cpu]\nsurface = false\n[throughput]")
    assert [parse(asked, device=device).accuracy.surface for device in ("cuda", "cpu")] == [True, False]


def test_backends_are_needed() -> None:
    with pytest.raises(ManifestError, match="backends"):
        parse("[build]\n", device="cpu")


def test_pairs_must_make_sense() -> None:
    with pytest.raises(ManifestError, match=r"throughput\.max_pairs"):
        parse(TEXT.replace('anchor = "fa3"', "max_pairs = 3"), device="cuda")


def test_processes_are_left_to_the_device_unless_asked_for() -> None:
    assert parse(TEXT, device="cuda").throughput.processes is None
    asked = TEXT.replace('anchor = "fa3"', 'anchor = "fa3"\nprocesses = 8').replace(
        '"1x4x256x64"]', '"1x4x256x64"], processes = 2'
    )
    assert [parse(asked, device=device).throughput.processes for device in ("cuda", "cpu")] == [8, 2]


def test_the_further_suites_are_off_unless_asked_for() -> None:
    plain = parse(TEXT, device="cpu").accuracy
    assert (plain.symmetry, plain.determinism, plain.shapes, plain.repeats) == (False, False, (), 5)
    asked = 'inputs = ["late-keybias"]\nsymmetry = true\nshapes = ["1x1x16384x64"]\nrepeats = 3'
    found = parse(TEXT.replace('inputs = ["late-keybias"]', asked), device="cpu").accuracy
    assert (found.symmetry, found.determinism, found.shapes, found.repeats) == (True, False, ("1x1x16384x64",), 3)


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ('inputs = ["late-keybias"]', 'symmetry = "yes"', 9, "accuracy.symmetry: must be true or false"),
        (
            'inputs = ["late-keybias"]',
            'shapes = ["late-keybias"]',
            9,
            "accuracy.shapes: 'late-keybias' is not of the form",
        ),
        ('inputs = ["late-keybias"]', "repeats = 1", 9, "accuracy.repeats: must be at least 2"),
        ("dq_error_ceiling = 0.0035", "dq_symmetry_ceiling = 0.004", 17, "needs symmetry = true under [accuracy]"),
        ('anchor = "fa3"', "processes = 0", 12, "throughput.processes: must lie between 1 and 16"),
        ('anchor = "fa3"', "processes = 17", 12, "throughput.processes: must lie between 1 and 16"),
        ('anchor = "fa3"', "processes = 2.5", 12, "throughput.processes: must be an integer"),
        ('anchor = "fa3"', "processes = 5\npairs = 4", 12, "not above pairs"),
    ],
)
def test_errors_of_the_further_suites(old: str, new: str, line: int, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(TEXT.replace(old, new, 1), device="cpu")
    assert problem in str(caught.value)
    assert caught.value.line == line


def test_unknown_device_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="unknown device"):
        parse(TEXT, device="tpu")


def test_our_own_manifest_is_valid_on_every_device() -> None:
    text = (Path(__file__).parents[3] / "gprojci.toml").read_text()
    for device in ("cpu", "cuda"):
        manifest = parse(text, device=device)
        assert set(manifest.backends) == {"gproj", "zerosum"}
        assert set(manifest.gate.limits) <= set(GATE_LIMITS)
