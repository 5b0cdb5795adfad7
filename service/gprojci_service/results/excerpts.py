"""Every query of parts of stored reports: a whole one is megabytes of JSON, and a page shows little of it.

PostgreSQL cuts the parts out. SQLite has no JSON paths with variables: there the whole is read and cut here, alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    and_,
    bindparam,
    case,
    cast,
    column,
    func,
    select,
    true,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, JSONPATH
from sqlalchemy.orm import Session

from gprojci_service.database import is_postgresql
from gprojci_service.models import ImportedReport, Report

Stored = type[Report] | type[ImportedReport]
Wanted = Mapping[str, Collection[str]]
"""Entries of which each of these fields has one of its values."""

_COMPARED = '$.comparisons[*] ? (@.pass == "forward_backward" && @.control == false && @.revision != "base")'


@dataclass(frozen=True)
class Cut:
    """Which entries of a report's long lists are kept; None: no entry. All else is kept, but for the statistics of its
    inputs and single responses to shifts, which no page of a report shows."""

    slices: Wanted | None = None
    summary: Wanted | None = None
    measurements: Wanted | None = None
    comparisons: Wanted | None = None
    kernels: Wanted | None = None

    def sections(self) -> dict[str, dict[str, Wanted | None]]:
        """The lists by the section of the report that they stand in."""
        timed = {"measurements": self.measurements, "comparisons": self.comparisons, "kernels": self.kernels}
        return {
            "accuracy": {"slices": self.slices, "summary": self.summary},
            "throughput": timed,
            "symmetry": {"responses": None},
        }


@dataclass(frozen=True)
class Outline:
    """What there is to choose from in a report.

    Attributes:
        inputs: input sets used.
        measured: cases that were timed.
        compared: cases in which forward and backward were timed against the anchor.
        sliced: whether there is a slice of any input set.
    """

    inputs: tuple[str, ...]
    measured: tuple[str, ...]
    compared: tuple[str, ...]
    sliced: bool


def excerpt(session: Session, stored: Stored, number: int, cut: Cut) -> dict[str, Any]:
    """The JSON of a report without the entries that `cut` leaves out: it keeps to the contract where the whole does."""
    if not is_postgresql(session):
        return _excerpt(_whole(session, stored, number), cut)
    parameters: dict[str, Any] = {"number": number}
    shape = []
    for section, lists in cut.sections().items():
        for name, wanted in lists.items():
            shape.append((section, name, None if wanted is None else tuple(wanted)))
            if wanted is not None:
                parameters[name] = {field: list(values) for field, values in wanted.items()}
    return {row[0]: row[1] for row in session.execute(_excerpt_query(stored, tuple(shape)), parameters)}


@cache
def _excerpt_query(stored: Stored, shape: tuple[tuple[str, str, tuple[str, ...] | None], ...]) -> Select[Any]:
    """What asks for an excerpt, by the fields that its entries are chosen by; made once, as that takes its time."""
    key, value, sections = _sections(stored)
    empty = cast([], JSONB)
    kept: list[tuple[ColumnElement[bool], ColumnElement[Any]]] = []
    for section, lists in groupby(shape, key=itemgetter(0)):
        found: list[Any] = []
        for _, name, fields in lists:
            entries = empty if fields is None else func.coalesce(_at(value[name], _path(fields), name), empty)
            found += [name, entries]
        rest = value.op("-")(cast(found[::2], ARRAY(String)))  # joining would copy the long lists first
        is_there = and_(key == section, func.jsonb_typeof(value) == "object")
        kept.append((is_there, rest.op("||")(func.jsonb_build_object(*found))))
    item = func.jsonb_array_elements(value).table_valued(column("value", JSONB)).c.value
    bare = select(func.coalesce(func.jsonb_agg(item.op("||")(cast({"statistics": []}, JSONB))), empty))
    kept.append((key == "inputs", bare.scalar_subquery()))
    return sections.with_only_columns(key, case(*kept, else_=value), maintain_column_froms=True)


def slices(session: Session, stored: Stored, number: int, wanted: Wanted) -> list[dict[str, Any]]:
    """The JSON of the wanted slices of a report."""
    if not is_postgresql(session):
        body = _whole(session, stored, number)
        return _entries((body.get("accuracy") or {}).get("slices", []), wanted)
    parameters = {"number": number, "slices": {field: list(values) for field, values in wanted.items()}}
    return list(session.execute(_slices_query(stored, tuple(wanted)), parameters).scalar_one())


@cache
def _slices_query(stored: Stored, fields: tuple[str, ...]) -> Select[Any]:
    path = f"$.accuracy.slices{_path(fields)[1:]}"
    return select(_at(type_coerce(stored.body, JSONB), path, "slices")).where(stored.id == bindparam("number"))


def outline(session: Session, stored: Stored, number: int) -> Outline:
    """What there is to choose from in a report."""
    if not is_postgresql(session):
        return _outline(_whole(session, stored, number))
    found = {row[0]: row[1] for row in session.execute(_outline_query(stored), {"number": number})}
    measured, cases, against = found.get("throughput", ([], [], []))
    return Outline(
        tuple(found.get("inputs", ())),
        tuple(dict.fromkeys(measured)),
        _compared(found.get("backends", []), zip(cases, against, strict=True)),
        bool(found.get("accuracy")),
    )


@cache
def _outline_query(stored: Stored) -> Select[Any]:
    key, value, sections = _sections(stored)
    timed = ("$.measurements[*].case", f"{_COMPARED}.case", f"{_COMPARED}.against_backend")
    names = {
        "inputs": _at(value, "$[*].input"),
        "backends": _at(value, '$[*] ? (@.role == "anchor").backend'),
        "accuracy": _at(value, "$.slices[0].tensor"),
        "throughput": func.jsonb_build_array(*(_at(value, path) for path in timed)),
    }
    part = case(*((key == section, found) for section, found in names.items()))
    return sections.with_only_columns(key, part, maintain_column_froms=True).where(key.in_(list(names)))


def _sections(stored: Stored) -> tuple[ColumnElement[str], ColumnElement[Any], Select[Any]]:
    """Key and value of each section of a report, and where they are from: unpacked once, however many are asked for."""
    each = func.jsonb_each(stored.body).table_valued(column("key", String), column("value", JSONB))
    found = select(each.c.key, each.c.value).select_from(stored).join(each, true())
    return each.c.key, each.c.value, found.where(stored.id == bindparam("number"))


def _path(fields: Iterable[str]) -> str:
    """The JSON path to entries each of whose fields has one of the values that stand in the variable of its name."""
    conditions = " && ".join(f"@.{field} == ${field}[*]" for field in fields)
    return f"$[*] ? ({conditions})" if conditions else "$[*]"


def _at(value: ColumnElement[Any], path: str, variables: str | None = None) -> ColumnElement[Any]:
    """The items at a path, whose variables are in the parameter of that name."""
    given: ColumnElement[Any] = cast({}, JSONB) if variables is None else bindparam(variables, type_=JSONB)
    return func.jsonb_path_query_array(value, cast(path, JSONPATH), given)


def _whole(session: Session, stored: Stored, number: int) -> dict[str, Any]:
    body: dict[str, Any] = session.execute(select(stored.body).where(stored.id == number)).scalar_one()
    return body


def _excerpt(body: Mapping[str, Any], cut: Cut) -> dict[str, Any]:
    found = dict(body)
    if "inputs" in body:
        found["inputs"] = [{**entry, "statistics": []} for entry in body["inputs"]]
    for section, lists in cut.sections().items():
        if body.get(section) is not None:
            kept = {name: _entries(body[section].get(name, []), wanted) for name, wanted in lists.items()}
            found[section] = {**body[section], **kept}
    return found


def _entries(items: list[dict[str, Any]], wanted: Wanted | None) -> list[dict[str, Any]]:
    if wanted is None:
        return []
    return [item for item in items if all(item[field] in values for field, values in wanted.items())]


def _outline(body: Mapping[str, Any]) -> Outline:
    timed = body.get("throughput") or {"measurements": [], "comparisons": []}
    compared = [
        (item["case"], item["against_backend"])
        for item in timed["comparisons"]
        if (item["pass"], item["control"]) == ("forward_backward", False) and item["revision"] != "base"
    ]
    anchors = [entry["backend"] for entry in body.get("backends", []) if entry["role"] == "anchor"]
    return Outline(
        tuple(entry["input"] for entry in body.get("inputs", [])),
        tuple(dict.fromkeys(item["case"] for item in timed["measurements"])),
        _compared(anchors, compared),
        bool((body.get("accuracy") or {}).get("slices")),
    )


def _compared(anchors: list[str], compared: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(case_ for case_, against in compared if [against] == anchors[:1]))
