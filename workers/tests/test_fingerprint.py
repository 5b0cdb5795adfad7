"""The hash of a measurement: equal for equal builds of other commits, another for whatever may change a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from gprojci_suite.contract import RunSpec
from gprojci_workers import fingerprint

SPEC = {
    "schema_version": 1,
    "device": "cpu",
    "seed": 0,
    "suites": ["accuracy"],
    "subjects": [
        {
            "backend": "tiny",
            "revision": "head",
            "entry": "tiny:attention",
            "python": "/cache/k/bin/python",
            "site": "/cache/k",
            "commit": "a" * 40,
            "build_key": "k",
            "build_seconds": 3.0,
        }
    ],
    "peers": [],
    "anchor": None,
    "inputs": ["mine"],
    "input_directory": "/scratch/1/inputs",
}
HASHES = {"mine": "sha256:" + "1" * 64}


@pytest.fixture
def mark(worker_settings, monkeypatch):
    """Hashes SPEC with changes under changed settings."""
    facts = {"packages": ["torch==2.13.0"], "python": "3.11", "inputs": []}
    monkeypatch.setattr(fingerprint, "ruler_facts", lambda _: facts)
    monkeypatch.setattr(fingerprint, "_ruler_revision", lambda _: "f" * 40)

    def make(hashes=HASHES, settings=None, **changes):
        subject = {**SPEC["subjects"][0], **changes.pop("subject", {})}
        spec = RunSpec.from_json({**SPEC, "subjects": [subject], **changes})
        return fingerprint.fingerprint(worker_settings.model_copy(update=settings or {}), spec, hashes)

    return make


def test_another_commit_with_the_same_build_is_the_same_measurement(mark):
    other = {"commit": "b" * 40, "python": "/other/bin/python", "site": "/other", "build_seconds": None}
    limits = {"session_seconds": 12.0}
    assert mark(subject=other, input_directory="/scratch/2/inputs", limits=limits) == mark()
    assert len(mark()) == 64


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": {"build_key": "other"}},
        {"subject": {"entry": "tiny:other"}},
        {"hashes": {"mine": "sha256:" + "2" * 64}},
        {"seed": 1},
        {"peers": ["sdpa-math"]},
        {"settings": {"device_name": "another CPU"}},
        {"settings": {"hardware": "other"}},
    ],
    ids=str,
)
def test_whatever_may_change_a_value_makes_another(mark, changes):
    assert mark(**changes) != mark()


def test_another_ruler_makes_another(mark, monkeypatch):
    before = mark()
    monkeypatch.setattr(fingerprint, "_ruler_revision", lambda _: "e" * 40)
    assert mark() != before


def test_the_revision_is_the_rulers_own(worker_settings):
    from gprojci_suite.identity import ruler

    assert fingerprint._ruler_revision(Path(worker_settings.ruler_python)) == ruler().revision
