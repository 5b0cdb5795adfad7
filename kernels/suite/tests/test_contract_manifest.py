"""The manifest: device overrides, and errors that name key and line."""

import tomllib
from pathlib import Path

import pytest

from gprojci_suite.contract import ManifestError
from gprojci_suite.contract.manifest import GATE_LIMITS, parse
from gprojci_suite.contract.toml_positions import positions

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
        ('["late-keybias"]', '["a", "a"]', 9, "lists 'a' twice"),
        ('["late-keybias"]', '[]\nsurface = "yes"', 10, "accuracy.surface: must be true or false"),
        ('"fa3"', "3", 12, "throughput.anchor: must be a non-empty string"),
        ("4x16x4096x128", "4x16x4096", 13, "not of the form"),
        ('"4x16x4096x128"]', '"4x16x4096x128"]\nstep_models = ["450"]', 14, "unknown model '450'; did you mean '450m'"),
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


def test_all_errors_are_told_at_once_in_the_order_of_the_file() -> None:
    text = TEXT.replace("path", "pth").replace("0.0035", "-1").replace('["late-keybias"]', '["a",\n  "a"]')
    with pytest.raises(ManifestError) as caught:
        parse(text, device="cuda")
    assert [(found.line, found.column) for found in caught.value.problems] == [(3, 1), (10, 3), (18, 1)]
    assert str(caught.value).startswith("line 3, column 1: build.pth: unknown key; did you mean 'path'?; line 10,")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[gate]\nx = 1 2\n", (2, 7)),
        ("[gate]\nx = [1,\n", (2, None)),
        ("a = '\x00'", (1, 6)),
        ("x = " + "[" * 9999, (None, None)),
    ],
)
def test_errors_of_syntax_have_their_place(text: str, place: tuple[int | None, int | None]) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(text, device="cuda")
    (found,) = caught.value.problems
    assert (found.line, found.column) == place


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"key{number} = 1" for number in range(3000)),
        f"[accuracy]\ninputs = [{', '.join(chr(34) + str(number) + chr(34) for number in range(6000))}]",
        "[[gate.rules]]\nrequired = true\n" * 2000,
        "#" * 70_000,
    ],
)
def test_a_stranger_cannot_make_it_long(text: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(text, device="cuda")
    assert 1 <= len(caught.value.problems) <= 50


RULES = """
[[gate.rules]]
backends = ["gproj"]
inputs = ["late-*"]
dq_error_ceiling = 0.002

[[gate.rules]]
shapes = ["1x4x256x64"]
hardware = ["a100", "h*"]
required = false
"""


def test_rules_know_their_line_and_whether_the_device_measures_what_they_are_for() -> None:
    cpu, cuda = (parse(TEXT + RULES, device=device).gate.rules for device in ("cpu", "cuda"))
    assert [(rule.line, rule.expected) for rule in cpu] == [(24, True), (29, True)]
    assert [rule.expected for rule in cuda] == [True, False]
    assert (cpu[0].limits, cpu[0].inputs, cpu[0].required) == ({"dq_error_ceiling": 0.002}, ("late-*",), None)
    assert (cpu[1].limits, cpu[1].hardware, cpu[1].required) == ({}, ("a100", "h*"), False)
    gate = parse(TEXT + RULES, device="cuda").gate
    assert gate.lines == {"dq_error_ceiling": 17, "dq_error_ratio": 18}
    assert gate.every_limit("dq_error_ceiling") == [0.0035, 0.002]


@pytest.mark.parametrize(
    ("old", "new", "place", "problem"),
    [
        (
            '"late-*"',
            '"late-*",\n"lete-keybias"',
            (27, 1),
            "fits nothing that is gated here; did you mean 'late",
        ),
        ('["gproj"]', '["gprj"]', (25, 13), "did you mean 'gproj'"),
        ('"1x4x256x64"', '"1x4x25x64"', (30, 11), "did you mean '1x4x256x64'"),
        ("required", "requird", (32, 1), "did you mean 'required'"),
        ("required = false", "required = 0", (32, 1), "must be true or false"),
        ("required = false", "", (29, 1), "a rule needs a limit, or `required`, or both"),
        ("dq_error_ceiling = 0.002", "dq_symmetry_ceiling = 0.002", (27, 1), "needs symmetry = true"),
        ("[[gate.rules]]\nbackends", "[[gate.cpu.rules]]\nbackends", (24, 1), "rules stand in [[gate.rules]]"),
    ],
)
def test_errors_of_rules(old: str, new: str, place: tuple[int, int], problem: str) -> None:
    assert old in RULES
    with pytest.raises(ManifestError) as caught:
        parse(TEXT + RULES.replace(old, new, 1), device="cpu")
    found = caught.value.problems[0]
    assert problem in found.problem
    assert (found.line, found.column) == place


def test_an_input_set_that_is_gated_must_be_measured() -> None:
    with pytest.raises(ManifestError, match=r"column 11: .*does not list 'lat-keybias'; did you mean 'late-keybias'"):
        parse(TEXT.replace("[gate]", '[gate]\ninputs = ["lat-keybias"]'), device="cpu")


def test_every_kind_of_key_and_value_has_its_place() -> None:
    text = (
        '# a comment = 1\r\na = {b = [1, {c = 2}], "d e" = 3} # x = [\r\n"q\\"[".r = """\nz = 1 \\""" """"\n'
        "[[t.u]]\n  x = 1979-05-27 07:32:00 # note\n[t.u.v]\ny = [\n  'a,]', # ]\n  '''b\n''',\n]\n[[t.u]]\nx = 2\n"
    )
    found = positions(text)

    def paths(value: object, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return [each for key, item in inner for each in ((*path, key), *paths(item, (*path, key)))]

    assert set(found) == set(paths(tomllib.loads(text), ()))
    assert found["a", "b", 1, "c"] == (2, 15)
    assert found["a", "d e"] == (2, 24)
    assert found['q"[', "r"] == (3, 1)
    assert (found["t", "u", 0, "x"], found["t", "u", 1, "x"]) == ((6, 3), (14, 1))
    assert found["t", "u", 0, "v", "y", 1] == (10, 3)


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
            "accuracy.shapes[0]: 'late-keybias' is not of the form",
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
