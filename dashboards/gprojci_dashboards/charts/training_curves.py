"""Training runs side by side: several measures over the same steps, a band over seeds for each backend."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gprojci_dashboards import theme
from gprojci_dashboards.readable import literal, percent
from gprojci_dashboards.sketch import Sketch, Trace, scatter

TITLE = "Training, backend by backend"
PANEL_PIXELS = 184
HEAD_PIXELS = 34
MARKS = 12
"""Marks on a line, which tell it from its neighbours where colour does not."""
BAND_OPACITY = 0.18

Unit = Literal["number", "fraction", "ratio"]


@dataclass(frozen=True)
class End:
    """Where a run ended before its last step, and why."""

    step: int
    value: float
    words: str


@dataclass(frozen=True)
class Line:
    """One backend (or layer, or weight): its middle over seeds at each step, between the smallest and the largest."""

    name: str
    steps: tuple[int, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    ends: tuple[End, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One measure. Fractions are drawn as percent, ratios with ×; on a logarithmic axis only what is above zero is."""

    title: str
    unit: Unit
    lines: tuple[Line, ...]
    logarithmic: bool = True
    zero: bool = False
    """Whether a line stands at zero, for differences."""


@dataclass(frozen=True)
class CurvesData:
    """Panels from top to bottom, over one axis of steps; a name looks the same in all of them."""

    panels: tuple[Panel, ...]
    parts: bool = False
    """Whether the lines are parts of one backend, such as its layers: told apart by their order, and without bands."""


def shown(value: float, unit: Unit) -> str:
    """`value` as text with its unit."""
    if unit == "fraction":
        return percent(value)
    if not math.isfinite(value):
        return percent(value).rstrip("%")
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"
    return f"{text}×" if unit == "ratio" else text.replace("-", "−", 1)


def figure(data: CurvesData) -> Sketch:
    """The panels over one axis of steps, which zooms all of them."""
    names = [line.name for panel in data.panels for line in panel.lines]
    looks = theme.looks_in_order(names) if data.parts else theme.distinct_looks(names)
    count = max(len(data.panels), 1)
    pitch, head = 1 / count, HEAD_PIXELS / (count * (PANEL_PIXELS + HEAD_PIXELS))
    chart = Sketch()
    named: set[str] = set()
    for place, panel in enumerate(data.panels):
        suffix = "" if place == 0 else str(place + 1)
        top = 1 - place * pitch - head
        for line in panel.lines:
            for trace in _traces(line, panel, *looks[line.name], band=not data.parts):
                # One entry in the legend stands for the name in all panels, and hides it in all.
                legend = trace.get("mode") == "lines+markers" and line.name not in named
                chart.add_trace({**trace, "yaxis": f"y{suffix}", "legendgroup": line.name, "showlegend": legend})
                named |= {line.name} if legend else set()
        if panel.zero and place == 0:
            chart.add_hline(y=0, line={"color": theme.FRONTIER.light, "width": 1, "dash": "dash"})
        chart.add_annotation(
            x=0,
            y=top,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            text=f"<b>{literal(panel.title)}</b>",
            showarrow=False,
            font={"size": 12, "color": theme.INK.light},
        )
        chart.update_layout(**{f"yaxis{suffix}": _value_axis(panel, [max(0.0, top - pitch + head), top])})
    last_step = max((step for panel in data.panels for line in panel.lines for step in line.steps), default=1)
    last = "y" if count == 1 else f"y{count}"
    theme.styled(chart, height=70 + count * (PANEL_PIXELS + HEAD_PIXELS), narrow={"legend": {"font": {"size": 11}}})
    chart.update_layout(
        xaxis=theme.axis(
            "training step", anchor=last if data.panels else None, range=[0, last_step * 1.01], tickformat=",d"
        ),
        hovermode="x",
    )
    return chart


def _traces(line: Line, panel: Panel, colour: str, symbol: str, *, band: bool) -> Iterable[Trace]:
    """The band, the line in its middle, and the crosses where runs ended early."""
    drawn = [
        (step, middle, low, high)
        for step, middle, low, high in zip(line.steps, line.middle, line.low, line.high, strict=True)
        if _drawable(middle, panel)
    ]
    name = literal(line.name)
    between = [point for point in drawn if _drawable(point[2], panel) and _drawable(point[3], panel)]
    spread = any(low < high for _, _, low, high in between)
    if band and spread:
        yield scatter(
            x=[point[0] for point in between] + [point[0] for point in reversed(between)],
            y=[_short(point[3]) for point in between] + [_short(point[2]) for point in reversed(between)],
            mode="lines",
            line={"width": 0},
            fill="toself",
            fillcolor=colour,
            opacity=BAND_OPACITY,
            hoverinfo="skip",
            name=name,
        )
    yield scatter(
        x=[point[0] for point in drawn],
        y=[_short(point[1]) for point in drawn],
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"color": colour, "symbol": symbol, "size": 7, "maxdisplayed": MARKS},
        name=name,
        customdata=[[_short(low), _short(high)] for _, _, low, high in drawn] if spread else None,
        hovertemplate=f"<b>{name}</b> {_reading(panel.unit, spread=spread)}<extra></extra>",
    )
    ends = [end for end in line.ends if _drawable(end.value, panel)]
    if ends:
        yield scatter(
            x=[end.step for end in ends],
            y=[end.value for end in ends],
            mode="markers",
            marker={"color": colour, "symbol": "x-thin", "size": 13, "line": {"color": colour, "width": 3}},
            name=name,
            text=[literal(end.words) for end in ends],
            hovertemplate=f"<b>{name}</b> %{{text}}<extra></extra>",
            cliponaxis=False,
        )


def _drawable(value: float, panel: Panel) -> bool:
    return math.isfinite(value) and (value > 0 or not panel.logarithmic)


def _short(value: float) -> float:
    """Four digits, which is more than a picture shows: the page is half as large."""
    return float(f"{value:.4g}") if math.isfinite(value) else value


def _reading(unit: Unit, *, spread: bool) -> str:
    """Template of what hovering says; plotly fills in the numbers, which no text has to carry for every point."""
    number, sign = (",.3~p", "") if unit == "fraction" else (",.3~r", "×" if unit == "ratio" else "")
    interval = f" (%{{customdata[0]:{number}}}{sign} … %{{customdata[1]:{number}}}{sign})" if spread else ""
    return f"%{{y:{number}}}{sign}{interval}"


def _value_axis(panel: Panel, domain: list[float]) -> dict[str, object]:
    if not panel.logarithmic:
        return theme.axis(domain=domain, tickformat=".3~g", nticks=6)
    values = [value for line in panel.lines for value in (*line.low, *line.high, *line.middle)]
    ticks, _ = theme.log_ticks(values)
    return theme.axis(
        domain=domain,
        type="log",
        tickvals=ticks,
        ticktext=[shown(tick, panel.unit) for tick in ticks],
        range=theme.log_range(values, pad=0.06),
    )
