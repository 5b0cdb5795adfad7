"""Finds the charts: one file each, discovered by listing names and imported only when asked for."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

from gprojci_dashboards.sketch import Sketch


class Chart(Protocol):
    """What every chart file offers: its title, and a figure put together from the dataclass defined beside it."""

    TITLE: str

    def figure(self, data: Any) -> Sketch: ...


class ChartDoesNotExist(LookupError):
    """There is no chart of that name."""


def names() -> list[str]:
    """The names of all charts, sorted; none of them is imported."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


@cache  # a page draws ten charts, and to list their names is to read a directory
def load(name: str) -> Chart:
    """The chart called `name`.

    Raises ChartDoesNotExist for an unknown name. Whatever importing the file raises comes through.
    """
    if name not in names():
        raise ChartDoesNotExist(f"no chart is called {name!r}; there are {', '.join(names())}")
    return cast(Chart, import_module(f"{__name__}.{name}"))
