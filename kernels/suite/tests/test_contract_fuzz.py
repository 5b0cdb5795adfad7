"""Manifests and headers of tensor files that strangers write: read or refused with a reason, bounded for CI."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gprojci_suite.contract import ManifestError, input_file, manifest, tensor_file
from gprojci_suite.contract.tensor_file import MalformedFile

GOOD = """
[build]
path = "kernels/gproj"
extras = ["hopper"]
[backends.gproj]
entry = "gproj:attention"
[accuracy]
inputs = ["late-keybias", "synthetic:offset"]
[throughput]
anchor = "fa3"
shapes = ["4x16x4096x128"]
pairs = 20
[gate]
dq_error_ceiling = 0.0035
[[gate.rules]]
backends = ["gproj"]
dk_worst_ceiling = 0.01
"""
VALUES = st.sampled_from(
    [
        *(
            "",
            "nan",
            "inf",
            "-1",
            "1e999",
            "99999999999999999999",
            "true",
            "1979-05-27",
            "[]",
            "{}",
            "[[]]",
            "[1, [2]]",
        ),
        *('""', '"\\u0000"', '"../../etc"', '"1x1x1x1x1"', '"0x0x0x0"', '"-e id"', "'''", "\x1b[31m"),
        '"' + "9" * 400 + 'x1x1x1"',
    ]
)
few = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "100")),
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    database=None,
    deadline=None,
)


@st.composite
def manifests(draw: st.DrawFn) -> str:
    lines = GOOD.splitlines()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        key, equals, _ = lines[at].partition("=")
        change = draw(st.sampled_from(["value", "key", "drop", "double", "text"]))
        if change == "value" and equals:
            lines[at] = f"{key}= {draw(VALUES)}"
        elif change == "key":
            lines[at] = draw(st.text(max_size=10)) + lines[at]
        elif change == "drop":
            lines[at] = ""
        elif change == "double":
            lines.insert(at, lines[at])
        else:
            lines[at] = draw(st.text(max_size=30))
    return "\n".join(lines)


@few
@given(manifests(), st.sampled_from(["cpu", "cuda"]))
def test_a_manifest_is_read_or_every_problem_is_told(text, device):
    with contextlib.suppress(ManifestError):
        manifest.parse(text, device=device)


@pytest.mark.parametrize("text", ["a = " + "[" * 20_000, "[" * 20_000, ".".join("a" * 30_000) + " = 1", "a." * 3000])
def test_a_manifest_that_would_take_long_is_refused_at_once(text):
    began = time.process_time()
    with pytest.raises(ManifestError):
        manifest.parse(text, device="cpu")
    assert time.process_time() - began < 2


ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "F16", "I8", "", "F99"]) | st.integers(),
        "shape": st.lists(st.integers(-1, 2**40), max_size=5) | st.text(max_size=3),
        "data_offsets": st.lists(st.integers(-1, 2**62), max_size=3),
    }
)
NAME = st.sampled_from(["layer0.q", "layer0.k", "layer0.v", "layer0.do", "__metadata__", "../x", ""]) | st.text(
    max_size=8
)


@few
@given(
    st.dictionaries(NAME, ENTRY | st.dictionaries(st.text(max_size=5), st.text(max_size=5)), max_size=5),
    st.integers(-9, 9),
)
def test_a_header_is_read_or_refused(header, off):
    body = json.dumps(header).encode()
    beginning = struct.pack("<Q", max(0, len(body) + off)) + body
    with contextlib.suppress(MalformedFile):
        input_file.describe(tensor_file.parse(beginning))


@few
@given(
    st.binary(max_size=40)
    | st.builds(lambda n, b: struct.pack("<Q", n) + b, st.integers(0, 2**64 - 1), st.binary(max_size=40))
)
def test_bytes_that_are_no_header_are_refused(beginning):
    with contextlib.suppress(MalformedFile):
        tensor_file.parse(beginning)
