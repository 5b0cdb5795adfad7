"""Accuracy against speed: one mark per backend, the frontier, and the subject's path over its last commits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gprojci_dashboards import theme
from gprojci_dashboards.readable import SHA_DIGITS, literal, percent, tensor_name
from gprojci_dashboards.sketch import Sketch, scatter

TITLE = "Accuracy against speed"
NAMED_AT_MOST = 10
"""Marks that are named beside themselves; with more of them the legend names all."""


@dataclass(frozen=True)
class Mark:
    """One backend. Errors are fractions; times are ratios to the anchor (1.0 = as fast as the anchor)."""

    backend: str
    role: str  # subject | anchor | peer
    error: float
    error_low: float
    error_high: float
    time: float
    time_low: float
    time_high: float
    note: str = ""  # e.g. "emulated": its time says nothing about a GPU
    url: str = ""
    commit: str = ""  # of a subject: SHA, subject line and author, as they shall be read


@dataclass(frozen=True)
class Step:
    """One earlier commit of the subject, on its path to where it stands now."""

    backend: str
    sha: str
    message: str
    error: float
    time: float
    url: str = ""
    author: str = ""


@dataclass(frozen=True)
class ParetoData:
    """`ceiling` is the gate's limit on the error as a fraction, or None where there is none."""

    marks: tuple[Mark, ...]
    anchor: str
    tensor: str = "dq"
    statistic: str = "median"
    ceiling: float | None = None
    path: tuple[Step, ...] = ()
    timed: str = "forward + backward"
    """What the time is of."""


def frontier(marks: tuple[Mark, ...]) -> list[Mark]:
    """The marks that no other mark beats on both error and time, from fastest to most accurate."""
    best: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: (mark.time, mark.error)):
        if not best or mark.error < best[-1].error:
            best.append(mark)
    return best


def figure(data: ParetoData) -> Sketch:
    """Error (log) over kernel time relative to the anchor; down and to the left is better."""
    name = tensor_name(data.tensor)
    chart = Sketch()
    marks = tuple(mark for mark in data.marks if mark.error > 0 and mark.time > 0)
    edge = frontier(marks)
    if len(edge) > 1:
        chart.add_trace(
            scatter(
                x=[mark.time for mark in edge],
                y=[mark.error for mark in edge],
                mode="lines",
                line={"color": theme.FRONTIER.light, "width": 1.5, "shape": "vh", "dash": "dot"},
                name="frontier",
                showlegend=False,
                hoverinfo="skip",
            )
        )
    for backend in dict.fromkeys(step.backend for step in data.path):
        _add_path(chart, data, backend)
    places, looks = label_places(marks), looks_of(marks)
    crowded = len(marks) > NAMED_AT_MOST
    for mark in sorted(marks, key=lambda mark: mark.role != "subject"):
        _add_mark(chart, mark, name, data, places[mark.backend], looks[mark.backend])

    errors = [value for mark in marks for value in (mark.error, mark.error_low, mark.error_high)]
    errors += [step.error for step in data.path]
    if data.ceiling is not None:
        errors.append(data.ceiling)
        chart.add_hrect(y0=1e-12, y1=data.ceiling, fillcolor=theme.GOOD_FILL.light)
        chart.add_hline(y=data.ceiling, line={"color": theme.LIMIT.light, "width": 1.5, "dash": "dash"})
        chart.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=math.log10(data.ceiling),
            yanchor="bottom",
            text=f"gate: {percent(data.ceiling)}",
            showarrow=False,
            font={"size": 11, "color": theme.LIMIT.light},
        )
    ticks, labels = theme.log_ticks(errors)
    times = [mark.time for mark in marks] + [step.time for step in data.path]
    wide = bool(times) and max(times) / min(times) > 5
    x_axis = theme.axis(f"{data.timed} time, relative to {data.anchor} (lower is faster)")
    reach = [*times, *(end for mark in marks for end in (mark.time_low, mark.time_high))]
    if wide:
        x_axis |= {
            "type": "log",
            "range": theme.log_range(reach, pad=0.08),
            **theme.ratio_ticks(),
        }
    else:
        low, high = min(reach, default=0.0), max(reach, default=1.0)
        width = max(high - low, 0.2)
        x_axis |= {"ticksuffix": "×", "range": [low - 0.06 * width, high + 0.08 * width]}
    y_axis = theme.axis(
        f"{name} error, {data.statistic} over slices (lower is better)",
        type="log",
        tickvals=ticks,
        ticktext=labels,
        range=theme.log_range(errors),
    )
    narrow: dict[str, Any] = {
        "showlegend": True,
        "xaxis": {"title": {"text": f"time ÷ {data.anchor}"}},
        "yaxis": {"title": {"text": f"{name} error"}},
    }
    if crowded:
        # Names beside so many marks would lie on each other; the legend may take half of the height.
        for trace in chart.data:
            if trace["mode"] == "markers+text":
                trace["mode"] = "markers"
        narrow["height"] = 360 + 20 * len(marks)
    names = [mark.backend for mark in marks] if crowded else []
    theme.styled(chart, height=440 + theme.legend_pixels(names), legend=crowded, narrow=narrow)
    chart.update_layout(xaxis=x_axis, yaxis=y_axis)
    return chart


def _add_path(chart: Sketch, data: ParetoData, backend: str) -> None:
    colour, _, _ = theme.look(backend)
    steps = [step for step in data.path if step.backend == backend and step.error > 0 and step.time > 0]
    now = [mark for mark in data.marks if mark.backend == backend and mark.error > 0]
    chart.add_trace(
        scatter(
            x=[step.time for step in steps] + [mark.time for mark in now],
            y=[step.error for step in steps] + [mark.error for mark in now],
            mode="lines+markers",
            line={"color": colour, "width": 1.25},
            opacity=0.55,
            marker={
                "size": [6] * len(steps) + [0.1] * len(now),
                "color": colour,
                "symbol": "circle",
            },
            customdata=[step.url for step in steps] + [mark.url for mark in now],
            text=[
                f"<b>{literal(step.sha[:SHA_DIGITS])}</b> {literal(step.message[:70])}"
                f"{f' · {literal(step.author)}' if step.author else ''}<br>"
                f"{percent(step.error)} · {step.time:.2f}× {literal(data.anchor)}"
                for step in steps
            ]
            + [""] * len(now),
            hovertemplate="%{text}<extra></extra>",
            name=f"{backend}, earlier commits",
            showlegend=False,
        )
    )


def looks_of(marks: tuple[Mark, ...]) -> dict[str, tuple[str, str]]:
    """Colour (light) and symbol by backend: its own, or, where the legend alone names so many, no two the same."""
    names = [mark.backend for mark in marks]
    return theme.distinct_looks(names) if len(names) > NAMED_AT_MOST else {name: theme.look(name)[:2] for name in names}


def label_places(marks: tuple[Mark, ...]) -> dict[str, str]:
    """Where each mark's name goes so that names of neighbours do not meet: plotly text positions by backend."""
    if not marks:
        return {}
    xs, ys = [mark.time for mark in marks], [math.log10(mark.error) for mark in marks]
    width, height = max(max(xs) - min(xs), 0.2), max(max(ys) - min(ys), 1.0)
    places = {}
    for mark in marks:
        near = [
            other.time >= mark.time
            for other in marks
            if other is not mark
            and (other.role == "subject") == (mark.role == "subject")
            and abs(other.time - mark.time) < 0.3 * width
            and abs(math.log10(other.error / mark.error)) < 0.07 * height
        ]
        side = "center" if any(near) and not all(near) else "left" if any(near) else "right"
        # Subjects are named above, peers below: so a subject never meets the peer it is measured against.
        places[mark.backend] = f"{'top' if mark.role == 'subject' else 'bottom'} {side}"
    return places


def _literal(text: str) -> str:
    """Text in a template of plotly's, which would take `%{…}` for a name of its own."""
    return literal(text).replace("{", "&#123;")


def _add_mark(chart: Sketch, mark: Mark, tensor: str, data: ParetoData, place: str, look: tuple[str, str]) -> None:
    colour, symbol = look
    subject = mark.role == "subject"
    role = {"subject": "under test", "anchor": "the anchor", "peer": "peer"}.get(mark.role, mark.role)
    note = f" · {mark.note}" if mark.note else ""
    chart.add_trace(
        scatter(
            x=[mark.time],
            y=[mark.error],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [max(0.0, mark.error_high - mark.error)],
                "arrayminus": [max(0.0, mark.error - mark.error_low)],
                "color": colour,
                "thickness": 1.25,
                "width": 3,
            },
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [max(0.0, mark.time_high - mark.time)],
                "arrayminus": [max(0.0, mark.time - mark.time_low)],
                "color": colour,
                "thickness": 1.25,
                "width": 3,
            },
            mode="markers+text",
            text=[f"  <b>{literal(mark.backend)}</b>  " if subject else f"  {literal(mark.backend)}  "],
            textposition=place,
            textfont={"size": 12, "color": colour},
            cliponaxis=False,
            marker={
                "symbol": symbol if subject or mark.role == "anchor" else f"{symbol}-open",
                "size": 15 if subject else 11,
                "color": colour,
                "line": {"width": 2, "color": colour},
            },
            name=mark.backend,
            customdata=[mark.url],
            hovertemplate=(
                f"<b>{literal(mark.backend)}</b> ({role}{literal(note)})<br>"
                f"{tensor} error {percent(mark.error)} "
                f"({percent(mark.error_low)} … {percent(mark.error_high)} over slices)<br>"
                f"time {mark.time:.2f}× {literal(data.anchor)} ({mark.time_low:.2f} … {mark.time_high:.2f})"
                f"{f'<br>{_literal(mark.commit)}' if mark.commit else ''}"
                "<extra></extra>"
            ),
        )
    )
