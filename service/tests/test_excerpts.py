"""What is cut out of a stored report: the same on both databases, and a report of the contract again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from gprojci_service.context import Context
from gprojci_service.models import ImportedReport
from gprojci_service.results import excerpts
from gprojci_service.results.excerpts import Cut
from gprojci_service.settings import Settings
from gprojci_suite.contract.report import Report

sys.path.insert(0, str(Path(__file__).parent))
from test_pages_report import report_of

BODY = report_of("a" * 40, "b" * 40, broken=True, base_broken=False)


@pytest.fixture
def stored(settings: Settings) -> Iterator[tuple[Session, list[int]]]:
    """A whole report, one without suites, and one of another format, on either database."""
    bare = {**BODY, "accuracy": None, "throughput": None, "symmetry": None}
    with Context.open(settings).database.session(writes=True) as session:
        rows = [
            ImportedReport(content_hash=str(place), title="x", schema_version=1, body=body, hardware="cpu")
            for place, body in enumerate((BODY, bare, {"schema_version": 99}))
        ]
        session.add_all(rows)
        session.flush()
        yield session, [row.id for row in rows]


def entries(section: str, name: str, **wanted: str) -> list[dict[str, Any]]:
    """The entries of the whole report with these fields."""
    found: list[dict[str, Any]] = BODY[section][name]
    return [item for item in found if all(item[field] == value for field, value in wanted.items())]


def test_an_excerpt_has_the_wanted_entries_and_is_a_report(stored: tuple[Session, list[int]]) -> None:
    session, (number, *_) = stored
    case = BODY["throughput"]["measurements"][0]["case"]
    shown = {"input": ["late-keybias"], "tensor": ["dq"]}
    cut = Cut(slices=shown, summary={}, comparisons={"case": [case, "no such"], "pass": ["forward_backward"]})
    found = excerpts.excerpt(session, ImportedReport, number, cut)
    assert found["accuracy"] == {
        "slices": entries("accuracy", "slices", input="late-keybias", tensor="dq"),
        "summary": BODY["accuracy"]["summary"],
    }
    assert found["accuracy"]["slices"]
    kept = {**BODY["throughput"], "measurements": [], "kernels": []}
    kept["comparisons"] = entries("throughput", "comparisons", case=case, **{"pass": "forward_backward"})
    assert found["throughput"] == kept
    assert kept["comparisons"]
    assert found["symmetry"] == {**BODY["symmetry"], "responses": []}
    assert found["inputs"] == [{**entry, "statistics": []} for entry in BODY["inputs"]]
    others = BODY.keys() - {"accuracy", "throughput", "symmetry", "inputs"}
    assert {key: found[key] for key in others} == {key: BODY[key] for key in others}
    Report.from_json(found)
    slices = excerpts.slices(session, ImportedReport, number, {**shown, "revision": ["base"]})
    assert slices == entries("accuracy", "slices", input="late-keybias", tensor="dq", revision="base") != []


def test_the_outline_names_what_can_be_chosen(stored: tuple[Session, list[int]]) -> None:
    session, (number, *_) = stored
    found = excerpts.outline(session, ImportedReport, number)
    assert found.inputs == tuple(entry["input"] for entry in BODY["inputs"])
    assert found.measured == tuple(dict.fromkeys(item["case"] for item in BODY["throughput"]["measurements"]))
    assert found.compared == found.measured
    assert found.sliced


def test_what_is_not_there_is_left_out(stored: tuple[Session, list[int]]) -> None:
    session, (_, bare, foreign) = stored
    found = excerpts.excerpt(session, ImportedReport, bare, Cut(slices={}))
    assert (found["accuracy"], found["throughput"], found["symmetry"]) == (None, None, None)
    outline = excerpts.outline(session, ImportedReport, bare)
    assert (outline.measured, outline.compared, outline.sliced) == ((), (), False)
    assert excerpts.slices(session, ImportedReport, bare, {}) == []
    assert excerpts.excerpt(session, ImportedReport, foreign, Cut()) == {"schema_version": 99}
    assert excerpts.outline(session, ImportedReport, foreign).inputs == ()
