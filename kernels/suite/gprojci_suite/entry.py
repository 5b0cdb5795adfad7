"""A subject's callable in its own process: imported from its build, and its exceptions as statuses of the report.

Imports the standard library, and torch only once that is known to be there.
"""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

DETAIL_LIMIT = 4000


class Refused(Exception):
    """A backend cannot do what was asked; carries a status of the report and the reason."""

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def load_entry(entry: str, site: str, path: str | None) -> Callable[..., Any]:
    """Import `module:callable`; the module's file must lie under `site` unless that is empty.

    Raises:
        Refused: build_error when it cannot be imported, is not callable, or came from elsewhere.
    """
    if path is not None:
        sys.path.insert(0, path)
    module_name, _, attribute = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
        target: Any = module
        for name in attribute.split("."):
            target = getattr(target, name)
    # Importing runs arbitrary code of the commit: whatever it raises is the build's failure, not ours.
    except BaseException as error:
        raise Refused("build_error", f"cannot import {entry}: {describe(error)}") from error
    if not callable(target):
        raise Refused("build_error", f"{entry} is not callable")
    if site:
        file = getattr(module, "__file__", None)
        if file is None or not Path(file).resolve().is_relative_to(Path(site).resolve()):
            raise Refused("build_error", f"{module_name} came from {file}, not from the build under {site}")
    return target


def takes_deterministic(attention: Any) -> bool:
    """Whether a callable names the keyword `deterministic`; one that swallows any keyword does not tell."""
    try:
        parameters = inspect.signature(attention).parameters
    except (TypeError, ValueError):
        return False
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return "deterministic" in parameters and parameters["deterministic"].kind in named


def describe(error: BaseException) -> str:
    """The exception and the end of its traceback, capped."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    return f"{type(error).__name__}: {error}"[:500] + "\n" + trace[-DETAIL_LIMIT:]


def classify(error: BaseException) -> str:
    """The report's status for an exception of the measured code."""
    import torch

    allocation = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    if allocation or isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return "out_of_memory"
    return "unsupported" if isinstance(error, NotImplementedError) else "runtime_error"
