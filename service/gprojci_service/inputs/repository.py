"""Every query about input sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gprojci_service.models import InputFile, InputSet, Project


def by_hash(session: Session, content_hash: str) -> InputSet | None:
    return session.scalar(select(InputSet).where(InputSet.content_hash == content_hash))


def by_hashes(session: Session, hashes: Iterable[str]) -> dict[str, InputSet]:
    """Input sets by their content hash."""
    found = session.scalars(select(InputSet).where(InputSet.content_hash.in_(list(hashes))))
    return {one.content_hash: one for one in found}


def newest_of_name(session: Session, name: str) -> InputSet | None:
    return session.scalar(select(InputSet).where(InputSet.name == name).order_by(InputSet.last_seen_at.desc()).limit(1))


def all_inputs(session: Session) -> Sequence[InputSet]:
    return session.scalars(select(InputSet).order_by(InputSet.name, InputSet.id)).all()


def file_by_hash(session: Session, content_hash: str) -> InputFile | None:
    return session.scalar(select(InputFile).where(InputFile.content_hash == content_hash))


def file_by_name(session: Session, name: str) -> InputFile | None:
    return session.scalar(select(InputFile).where(InputFile.name == name))


def locked_file(session: Session, name: str) -> InputFile | None:
    return session.scalar(
        select(InputFile).where(or_(InputFile.name == name, InputFile.content_hash == name)).with_for_update()
    )


def all_files(session: Session) -> Sequence[tuple[InputFile, str | None]]:
    """Uploaded files with the name of their project."""
    rows = session.execute(
        select(InputFile, Project.name)
        .outerjoin(Project, Project.id == InputFile.project_id)
        .order_by(InputFile.name, InputFile.id)
    )
    return [(row[0], row[1]) for row in rows]
