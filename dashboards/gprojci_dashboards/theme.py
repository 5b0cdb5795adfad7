"""Every colour, shape and axis style of the charts, in a light and a dark reading of each.

A figure is drawn with the light colours and carries `layout.meta["dark"]`, a map from each of them to its dark
counterpart. The page swaps one for the other in the browser when the reader prefers dark, so one figure serves both.
Series colours follow Okabe and Ito (2008), adjusted to keep a contrast of at least 3:1 on either background; every
series also has a shape of its own, so that no reading depends on colour.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gprojci_dashboards.readable import percent
from gprojci_dashboards.sketch import Sketch


@dataclass(frozen=True)
class Tone:
    """One colour in its two readings, as hex or rgba strings. The light spelling must be unique over all tones."""

    light: str
    dark: str


INK = Tone("#1b1f27", "#e8eaef")
MUTED = Tone("#5b6472", "#9aa3b2")
GRID = Tone("#e9ecf1", "#262b35")
AXIS = Tone("#cfd5de", "#3a414e")
SURFACE = Tone("#ffffff", "#14171d")
LIMIT = Tone("#c2410c", "#fb923c")
GOOD = Tone("#0b7a5b", "#2fc296")
GOOD_FILL = Tone("rgba(11,122,91,0.07)", "rgba(47,194,150,0.08)")
LIMIT_FILL = Tone("rgba(194,65,12,0.09)", "rgba(251,146,60,0.13)")
FRONTIER = Tone("#97a1b0", "#6b7484")

SERIES: tuple[Tone, ...] = (
    Tone("#0068a8", "#56b4e9"),
    Tone("#c65000", "#f0813a"),
    Tone("#00835f", "#21c296"),
    Tone("#a8508a", "#dd8fc0"),
    Tone("#8a6d00", "#e3c33c"),
    Tone("#4b5563", "#b4bcc8"),
    Tone("#2b8cbe", "#8fd0f5"),
    Tone("#7a4fc0", "#b79af0"),
    Tone("#b3273f", "#f47c8f"),
    Tone("#4f7a1d", "#9ccc5a"),
)
SYMBOLS: tuple[str, ...] = (
    "circle",
    "diamond",
    "square",
    "triangle-up",
    "cross",
    "x",
    "star",
    "hexagon",
    "triangle-down",
    "pentagon",
)
DASHES: tuple[str, ...] = ("solid", "dash", "dot", "dashdot", "longdash")

# Backends that everybody knows keep their colour and shape on every page.
KNOWN: dict[str, int] = {
    "gproj": 0,
    "emulated-fa3": 1,
    "fa3": 1,
    "zerosum": 2,
    "emulated-fa3-unfused": 3,
    "fa3-unfused": 3,
    "unfused": 3,
    "fa4": 3,
    "emulated-gproj": 6,
    "emulated-zerosum": 9,
    "sdpa-flash": 4,
    "sdpa-math": 5,
    "fp32": 7,
    "sdpa-cudnn": 8,
}

# From "well under the limit" over "at the limit" to "far beyond it"; blue to vermilion is safe for the colour-blind.
HEAT: tuple[tuple[float, Tone], ...] = (
    (0.0, Tone("#1f6fa8", "#2f86c4")),
    (0.25, Tone("#8fbfdd", "#24506f")),
    (0.5, Tone("#f3f1ec", "#2a2d33")),
    (0.62, Tone("#f7cfa0", "#6b4422")),
    (0.8, Tone("#e07b39", "#c9652a")),
    (1.0, Tone("#9c2a12", "#ff8a5c")),
)

LEGEND_ROW = 19
"""Height of a row of the legend in CSS pixels."""
NARROW = 300
"""Width of a legend on a narrow page, in CSS pixels."""

# Where a logarithmic axis of ratios has its ticks.
_RATIOS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

FONT = 'ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def look(backend: str) -> tuple[str, str, str]:
    """Colour (light), marker symbol and dash of a backend; the same name looks the same in every chart."""
    index = KNOWN.get(backend)
    if index is None:
        index = int.from_bytes(hashlib.sha256(backend.encode()).digest()[:4], "big") % len(SERIES)
    return SERIES[index].light, SYMBOLS[index % len(SYMBOLS)], DASHES[index % len(DASHES)]


def distinct_looks(backends: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour (light) and marker symbol of each backend where a legend alone tells them apart: no two are the same.

    The first of those that share a look keeps it, the others take another symbol or, with all taken, another colour.
    """
    taken: dict[str, tuple[str, str]] = {}
    for backend in dict.fromkeys(backends):
        colour, symbol, _ = look(backend)
        place, start = [tone.light for tone in SERIES].index(colour), SYMBOLS.index(symbol)
        for turn in range(len(SERIES) * len(SYMBOLS)):
            colours, symbols = divmod(turn, len(SYMBOLS))
            found = SERIES[(place + colours) % len(SERIES)].light, SYMBOLS[(start + symbols) % len(SYMBOLS)]
            if found not in taken.values():
                break
        taken[backend] = found
    return taken


def looks_in_order(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour (light) and marker symbol of things that have an order and no look of their own, such as layers."""
    found: dict[str, tuple[str, str]] = {}
    for place, name in enumerate(dict.fromkeys(names)):
        turn, symbol = divmod(place, len(SYMBOLS))
        found[name] = SERIES[(place + turn) % len(SERIES)].light, SYMBOLS[symbol]
    return found


def dark_map() -> dict[str, str]:
    """Light colour → dark colour, for the page to apply."""
    tones = [INK, MUTED, GRID, AXIS, SURFACE, LIMIT, GOOD, GOOD_FILL, LIMIT_FILL, FRONTIER, *SERIES]
    tones += [tone for _, tone in HEAT]
    return {tone.light: tone.dark for tone in tones}


def axis(title: str = "", *, standoff: int = 10, **more: Any) -> dict[str, Any]:
    """An axis in the common style, its title `standoff` pixels from its labels; `more` overrides."""
    style: dict[str, Any] = {
        "title": {"text": title, "font": {"size": 12, "color": MUTED.light}, "standoff": standoff},
        "gridcolor": GRID.light,
        "linecolor": AXIS.light,
        "tickcolor": AXIS.light,
        "tickfont": {"size": 11, "color": MUTED.light},
        "zeroline": False,
        "showline": True,
        "ticks": "",
        "automargin": True,
    }
    style.update(more)
    return style


def styled(figure: Sketch, *, height: int = 380, legend: bool = True, narrow: dict[str, Any] | None = None) -> Sketch:
    """`figure` with the common layout: transparent, no plotly template, legend above, the dark map in its meta.

    height is in CSS pixels; the width is always that of the page's box. `narrow` is a partial layout that the page
    merges in where that box is narrower than about 520 pixels and names beside marks give way to the legend.
    """
    figure.update_layout(
        template={},
        height=height,
        autosize=True,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 12, "color": INK.light},
        margin={"l": 8, "r": 12, "t": 12, "b": 8},
        showlegend=legend,
        legend={
            "orientation": "h",
            "yanchor": "bottom",
            "y": 1.02,
            "xanchor": "left",
            "x": 0,
            "font": {"size": 12, "color": INK.light},
            "itemsizing": "constant",
            "bgcolor": "rgba(0,0,0,0)",
        },
        hoverlabel={
            "bgcolor": SURFACE.light,
            "bordercolor": AXIS.light,
            "font": {"family": FONT, "size": 12, "color": INK.light},
            "align": "left",
        },
        hovermode="closest",
        dragmode="zoom",
        meta={"dark": dark_map(), "narrow": narrow or {}},
    )
    return figure


def legend_pixels(names: Iterable[str], *, width: int = 1100) -> int:
    """About how high the legend of these names is in a picture of this width, in CSS pixels."""
    found = list(names)
    across = max(1, width // (50 + 7 * max(map(len, found), default=0)))
    return LEGEND_ROW * -(-len(found) // across)


def log_ticks(values: Iterable[float]) -> tuple[list[float], list[str]]:
    """Tick positions (fractions) at the decades that cover `values`, and between them where there are few, with percent
    labels; for log axes of errors."""
    finite = [value for value in values if value > 0 and math.isfinite(value)]
    if not finite:
        return [0.001, 0.01, 0.1], ["0.1%", "1%", "10%"]
    low, high = math.floor(math.log10(min(finite))), math.ceil(math.log10(max(finite)))
    step = max(1, math.ceil((high - low) / 9))
    between = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high - low <= 1 else (1.0, 2.0, 5.0) if high - low <= 3 else (1.0,)
    positions = [float(f"{one}e{exponent}") for exponent in range(low, high + 1, step) for one in between]
    return positions, [percent(position) for position in positions]


def ratio_ticks(low: float = 0.0) -> dict[str, Any]:
    """The ticks of a logarithmic axis of ratios, from `low` on."""
    shown = [ratio for ratio in _RATIOS if ratio >= low]
    return {"tickvals": shown, "ticktext": [f"{ratio:,g}×" for ratio in shown]}


def log_range(values: Iterable[float], *, pad: float = 0.08) -> list[float] | None:
    """Range of a log axis (exponents of ten) that holds all positive finite values with some air; None for none."""
    finite = [math.log10(value) for value in values if value > 0 and math.isfinite(value)]
    if not finite:
        return None
    low, high = min(finite), max(finite)
    air = max((high - low) * pad, 0.15)
    return [low - air, high + air]
