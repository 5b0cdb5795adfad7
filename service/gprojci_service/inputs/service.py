"""Decisions about input sets: which are known from reports, which were uploaded, and that a name keeps its content."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gprojci_service.errors import Conflict, InputSetNotFound, InvalidRequest
from gprojci_service.inputs import repository, storage
from gprojci_service.inputs.schemas import InputSetOut, Statistics, UploadOut
from gprojci_service.models import InputFile, InputSet, Project, now
from gprojci_service.projects import service as projects
from gprojci_suite.contract import ContractError, codec, input_file
from gprojci_suite.contract import bundled as captures
from gprojci_suite.contract.report import SliceStatistics


class InputNameTaken(Conflict):
    """The name belongs to another content."""


class InputSetInUse(Conflict):
    """Reports refer to the input set."""


@dataclass(frozen=True)
class BundledSet:
    """A capture that comes with the ruler, as its file describes it: without statistics, which the ruler computes."""

    name: str
    content_hash: str
    description: dict[str, Any]


def record(session: Session, entries: list[dict[str, Any]]) -> None:
    """Keeps the description of every input set that a report's `inputs` lists."""
    by_hash = repository.by_hashes(session, {entry["content_hash"] for entry in entries})
    for entry in entries:
        known = by_hash.get(entry["content_hash"])
        if known is None:
            known = InputSet(content_hash=entry["content_hash"], name=entry["input"], description=entry)
            session.add(known)
            by_hash[known.content_hash] = known
        known.name, known.description, known.last_seen_at = entry["input"], entry, now()


@cache
def bundled() -> tuple[BundledSet, ...]:
    """The captures that come with the ruler, by name."""
    found = []
    for name in captures.names():
        data = captures.read(name)
        described, content_hash = input_file.check_stream(io.BytesIO(data), len(data))
        found.append(BundledSet(name, content_hash, _description(name, content_hash, described)))
    return tuple(found)


def admit(session: Session, name: str, project: str | None) -> Project | None:
    """What can be known before the file has come: that the name may be used, and the project.

    Raises:
        InputNameTaken: the ruler bundles a set of that name.
        ProjectNotFound: there is no such project.
    """
    if name in captures.names():
        raise InputNameTaken(f"the ruler bundles an input set called {name}; choose another name")
    return projects.get(session, project) if project else None


def keep(
    session: Session,
    directory: Path,
    incoming: storage.Incoming,
    found: input_file.InputFile,
    content_hash: str,
    *,
    name: str,
    project: str | None,
    uploaded_by: str,
) -> tuple[InputSetOut, bool]:
    """Stores a finished upload and says whether it is new; content that is there already keeps its first name.

    The row comes before the file and is committed after it: a row without a file cannot be seen.

    Raises:
        InputNameTaken: the name is another content's.
        ProjectNotFound: there is no such project.
        StorageFailed: the disk does not take it.
    """
    owner = admit(session, name, project)
    row = InputFile(
        name=name,
        content_hash=content_hash,
        size_bytes=found.file_bytes,
        description=_description(name, content_hash, found),
        project_id=owner.id if owner else None,
        uploaded_by=uploaded_by,
    )
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        known = repository.file_by_hash(session, content_hash)
        if known is None:
            raise InputNameTaken(
                f"{name} is the name of another content; a name keeps its content, because results are kept by it: "
                "choose another one"
            ) from None
        if not storage.path_of(directory, content_hash).exists():  # lost with a disk: here it is again
            incoming.keep(content_hash)
        return get(session, known.name), False
    incoming.keep(content_hash)
    return get(session, name), True


def _description(name: str, content_hash: str, found: input_file.InputFile) -> dict[str, Any]:
    return {
        "input": name,
        "content_hash": content_hash,
        "causal": found.causal,
        "softmax_scale": found.softmax_scale,
        "dtype": found.dtype,
        "layers": [asdict(layer) for layer in found.layers],
        "statistics": [],
        "provenance": {_storable(key): _storable(value) for key, value in found.provenance.items()},
    }


def _storable(text: str) -> str:
    """Without what PostgreSQL's JSON or UTF-8 does not take: NUL and halves of surrogate pairs."""
    return text.replace("\x00", "�").encode("utf-8", "replace").decode()


def describe(session: Session, name: str, given: Statistics) -> InputSetOut:
    """Notes the statistics that the ruler computed of an uploaded set; those of a report come before them.

    Raises:
        InputSetNotFound: nothing of that name was uploaded.
        InvalidRequest: they are those of another content or of other slices, or break the contract.
    """
    row = repository.locked_file(session, name)
    if row is None:
        raise InputSetNotFound(f"no input set {name} was uploaded; `gprojci inputs list` shows them")
    if given.content_hash != row.content_hash:
        raise InvalidRequest(f"these are the statistics of {given.content_hash}, but {name} is {row.content_hash}")
    try:
        statistics = [codec.decode(SliceStatistics, entry) for entry in given.statistics]
    except ContractError as error:
        raise InvalidRequest(f"statistics: {error}") from error
    slices = [
        f"{layer['layer']}.b{batch}.h{head}"
        for layer in row.description["layers"]
        for batch in range(layer["batch"])
        for head in range(layer["heads"])
    ]
    if [entry.slice for entry in statistics] != slices:
        raise InvalidRequest(
            f"statistics: one entry is needed for each of the {len(slices)} slices of {name}, in order"
        )
    row.description = {**row.description, "statistics": [codec.encode(entry) for entry in statistics]}
    session.flush()
    return get(session, row.name)


def listed(session: Session) -> list[InputSetOut]:
    """All input sets, uploaded or used by a report, by name."""
    seen = {item.content_hash: item for item in repository.all_inputs(session)}
    found = [_out(row, project, seen.pop(row.content_hash, None)) for row, project in repository.all_files(session)]
    found += [_out(None, None, item) for item in seen.values()]
    return sorted(found, key=lambda item: item.name)


def get(session: Session, name: str) -> InputSetOut:
    """The input set of that name or content hash.

    Raises:
        InputSetNotFound: none was uploaded, and no report used one.
    """
    row = file_of(session, name)
    if row is not None:
        project = session.get(Project, row.project_id) if row.project_id else None
        return _out(row, project.name if project else None, repository.by_hash(session, row.content_hash))
    item = repository.by_hash(session, name) or repository.newest_of_name(session, name)
    if item is None:
        raise InputSetNotFound(f"no input set {name} was uploaded, and no report used one")
    return _out(None, None, item)


def _out(row: InputFile | None, project: str | None, item: InputSet | None) -> InputSetOut:
    source = row or item
    assert source is not None
    return InputSetOut(
        name=source.name,
        content_hash=source.content_hash,
        description=(item or source).description,
        uploaded=UploadOut(
            size_bytes=row.size_bytes, project=project, uploaded_by=row.uploaded_by, uploaded_at=row.uploaded_at
        )
        if row
        else None,
        first_seen_at=item.first_seen_at if item else None,
        last_seen_at=item.last_seen_at if item else None,
    )


def file_of(session: Session, name: str) -> InputFile | None:
    """The uploaded file of that name or content hash."""
    return (
        repository.file_by_hash(session, name) if name.startswith("sha256:") else repository.file_by_name(session, name)
    )


def stored(session: Session, directory: Path, name: str) -> tuple[InputFile, Path]:
    """The uploaded file of that name or content hash, and where it lies.

    Raises:
        InputSetNotFound: none was uploaded, or its file is gone.
    """
    row = file_of(session, name)
    if row is None:
        raise InputSetNotFound(f"no input set {name} was uploaded; `gprojci inputs upload FILE --name NAME` does it")
    path = storage.path_of(directory, row.content_hash)
    if not path.is_file():
        raise InputSetNotFound(f"the file of {name} is gone from GPROJCI_UPLOAD_DIR; upload it again")
    return row, path


def remove(session: Session, directory: Path, name: str) -> None:
    """Removes an uploaded set that no report used, with its file.

    Raises:
        InputSetNotFound: nothing of that name was uploaded.
        InputSetInUse: a report used it, and its numbers could not be measured again.
    """
    row = repository.locked_file(session, name)
    if row is None:
        raise InputSetNotFound(f"no input set {name} was uploaded; `gprojci inputs list` shows them")
    if repository.by_hash(session, row.content_hash) is not None:
        raise InputSetInUse(f"reports used {row.name}: it stays, so that what they say can be measured again")
    session.delete(row)
    session.flush()
    # Before the commit, while the row still keeps another upload of the same content out.
    storage.remove(directory, row.content_hash)
