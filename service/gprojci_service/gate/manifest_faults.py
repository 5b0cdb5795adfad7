"""What is wrong in a head's manifest where that is why the build failed: the check run points at the lines."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.inputs import repository
from gprojci_suite.contract import ManifestError, bundled
from gprojci_suite.contract.errors import Problem
from gprojci_suite.contract.manifest import parse
from gprojci_suite.contract.toml_positions import positions


def find(session: Session, text: str | None, detail: str) -> list[dict[str, Any]] | None:
    """Problems of a manifest; None where it is not at fault.

    Args:
        detail: why the build failed. An input set that is unknown here may lie on the worker's host; it is at fault
            only where the worker says so.
    """
    if text is None:
        return None
    try:
        parse(text, device="cpu")
        found = _unknown_inputs(session, text, detail)
    except ManifestError as error:
        found = list(error.problems)
    return [asdict(problem) for problem in found] or None


def _unknown_inputs(session: Session, text: str, detail: str) -> list[Problem]:
    document, found = tomllib.loads(text), []
    known = [*bundled.names(), *(file.name for file, _ in repository.all_files(session))]
    for path, (line, column) in positions(text).items():
        if path[0] != "accuracy" or path[-2:-1] != ("inputs",):
            continue
        name: Any = document
        for key in path:
            name = name[key]
        if f"the input set {name}," in detail and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"`gprojci inputs upload FILE --name {name}` brings it"
            found.append(Problem(f"unknown input set {name!r}; {hint}", line, column))
    return found
