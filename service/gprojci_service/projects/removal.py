"""What depends on a project, found by the foreign keys of the tables, and how all of it is removed."""

from __future__ import annotations

from sqlalchemy import Column, Select, Table, delete, func, or_, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql import ColumnElement

from gprojci_service.models import Base, Project


def counts(session: Session, project: Project) -> dict[str, int]:
    """How many rows of each table would go, where any would."""
    found = {
        table.name: session.scalar(select(func.count()).select_from(table).where(condition)) or 0
        for table, condition in _doomed(project).items()
    }
    return {name: count for name, count in found.items() if count}


def remove(session: Session, project: Project) -> None:
    """Deletes the project and every row that cannot be without it; what may be without it only forgets it."""
    doomed = _doomed(project)
    session.flush()
    for table in Base.metadata.sorted_tables:
        for column in table.columns:
            parent = _parent(column)
            if parent is not None and parent in doomed and column.nullable:
                session.execute(update(table).where(column.in_(_ids(parent, doomed[parent]))).values({column: None}))
    for table in reversed(list(doomed)):
        session.execute(delete(table).where(doomed[table]))
    session.expire_all()


def _doomed(project: Project) -> dict[Table, ColumnElement[bool]]:
    """Tables with the condition on their rows that go, those that others refer to first."""
    root = Base.metadata.tables["project"]
    doomed: dict[Table, ColumnElement[bool]] = {root: root.c.id == project.id}
    for table in Base.metadata.sorted_tables:
        needed = [
            column.in_(_ids(parent, doomed[parent]))
            for column in table.columns
            if not column.nullable and (parent := _parent(column)) is not None and parent in doomed
        ]
        if needed:
            doomed[table] = or_(*needed)
    return doomed


def _parent(column: Column[object]) -> Table | None:
    """The table that a column refers to, if it does."""
    return next((key.column.table for key in column.foreign_keys), None)


def _ids(table: Table, condition: ColumnElement[bool]) -> Select[tuple[int]]:
    return select(table.c.id).where(condition)
