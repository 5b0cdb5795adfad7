"""What depends on a project, found by the foreign keys of the tables, and how all of it is removed."""

from __future__ import annotations

from sqlalchemy import Select, Table, delete, func, or_, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql import ColumnElement

from gprojci_service.models import Base, Project

FORGETS = ("input_file.project_id",)
"""Columns of what outlives a project: an uploaded input set may be used by every other."""


def counts(session: Session, project: Project) -> dict[str, int]:
    """How many rows of each table would go, where any would."""
    found = {
        table.name: session.scalar(select(func.count()).select_from(table).where(condition)) or 0
        for table, condition in _doomed(project).items()
    }
    return {name: count for name, count in found.items() if count}


def remove(session: Session, project: Project) -> None:
    """Deletes the project and every row that refers to it, directly or not; what outlives it only forgets it."""
    doomed = _doomed(project)
    session.flush()
    for name in FORGETS:
        table, _, column = name.partition(".")
        outliving = Base.metadata.tables[table]
        session.execute(update(outliving).where(outliving.c[column] == project.id).values({column: None}))
    for going in reversed(list(doomed)):
        session.execute(delete(going).where(doomed[going]))
    session.expire_all()


def _doomed(project: Project) -> dict[Table, ColumnElement[bool]]:
    """Tables with the condition on their rows that go, those that others refer to first."""
    root = Base.metadata.tables["project"]
    doomed: dict[Table, ColumnElement[bool]] = {root: root.c.id == project.id}
    for table in Base.metadata.sorted_tables:
        refers = [
            key.parent.in_(_ids(key.column.table, doomed[key.column.table]))
            for key in sorted(table.foreign_keys, key=lambda key: key.parent.name)
            if key.column.table in doomed and f"{table.name}.{key.parent.name}" not in FORGETS
        ]
        if refers:
            doomed[table] = or_(*refers)
    return doomed


def _ids(table: Table, condition: ColumnElement[bool]) -> Select[tuple[int]]:
    return select(table.c.id).where(condition)
