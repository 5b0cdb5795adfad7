"""Figures as the plain data that plotly.js reads.

`plotly.graph_objects` looks at every value of a figure when it is set, which takes longer than everything else that a
page does. The charts put the same data together with the same words here; `checked()` has plotly look at it once, in
tests and in notebooks.
"""

from __future__ import annotations

import json
import math
import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

Trace = dict[str, Any]


def scatter(**properties: Any) -> Trace:
    """A trace of marks, lines or texts; properties that are None are left out."""
    return {"type": "scatter", **_present(properties)}


def heatmap(**properties: Any) -> Trace:
    """A trace of coloured cells; properties that are None are left out."""
    return {"type": "heatmap", **_present(properties)}


def numbers(values: Iterable[float]) -> dict[str, str]:
    """Many numbers as plotly.js's packed array of 32-bit floats: a fourth of their digits' length."""
    packed = array("f", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return {"dtype": "f4", "bdata": b64encode(packed.tobytes()).decode()}


class Sketch:
    """A figure that is being put together.

    Attributes:
        data: its traces.
        layout: its layout; `meta.places` may hold a text for each place on the horizontal axis, which a trace whose
            hover template names `%{hovertext}` shows without carrying it for every value.
    """

    def __init__(self, *traces: Trace) -> None:
        self.data: list[Trace] = list(traces)
        self.layout: dict[str, Any] = {}

    def add_trace(self, trace: Trace) -> None:
        """Adds a trace."""
        self.data.append(trace)

    def add_annotation(self, **properties: Any) -> None:
        """Adds a text."""
        self.layout.setdefault("annotations", []).append(_present(properties))

    def add_hline(self, *, y: float, line: dict[str, Any]) -> None:
        """Adds a line across the figure at `y`."""
        self._add_shape("line", x0=0, x1=1, xref="x domain", y0=y, y1=y, yref="y", line=line)

    def add_vline(self, *, x: float, line: dict[str, Any]) -> None:
        """Adds a line from top to bottom at `x`."""
        self._add_shape("line", x0=x, x1=x, xref="x", y0=0, y1=1, yref="y domain", line=line)

    def add_line(self, **properties: Any) -> None:
        """Adds a line between two points, on the axes that are named."""
        self._add_shape("line", **properties)

    def add_hrect(self, *, y0: float, y1: float, fillcolor: str) -> None:
        """Fills the figure from `y0` to `y1`, below everything else."""
        band = {"y0": y0, "y1": y1, "yref": "y", "fillcolor": fillcolor, "line": {"width": 0}, "layer": "below"}
        self._add_shape("rect", x0=0, x1=1, xref="x domain", **band)

    def add_vrect(self, *, x0: float, x1: float, fillcolor: str) -> None:
        """Fills the figure from `x0` to `x1`, below everything else."""
        band = {"x0": x0, "x1": x1, "xref": "x", "fillcolor": fillcolor, "line": {"width": 0}, "layer": "below"}
        self._add_shape("rect", y0=0, y1=1, yref="y domain", **band)

    def _add_shape(self, kind: str, **properties: Any) -> None:
        self.layout.setdefault("shapes", []).append({"type": kind, **properties})

    def update_layout(self, **properties: Any) -> None:
        """Merges properties into the layout, nested ones too."""
        _merge(self.layout, _present(properties))

    def to_json(self) -> str:
        """The figure as strict JSON; numbers that are not finite become null."""
        figure = {"data": self.data, "layout": self.layout}
        try:
            return json.dumps(figure, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        except ValueError:
            return json.dumps(_finite(figure), allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    def checked(self) -> go.Figure:
        """The figure as plotly's own, for notebooks.

        Raises:
            ValueError: plotly knows no such property or value.
        """
        places = self.layout.get("meta", {}).get("places", [])
        traces = [
            {**trace, "hovertext": [places[place] for place in trace["x"]]} if _borrows(trace) else trace
            for trace in self.data
        ]
        return go.Figure({"data": traces, "layout": self.layout})


def _borrows(trace: Trace) -> bool:
    return "%{hovertext}" in trace.get("hovertemplate", "") and "hovertext" not in trace


def _present(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _present(value) if isinstance(value, dict) else value
        for key, value in properties.items()
        if value is not None
    }


def _merge(target: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = value


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
