"""The history and the accuracy-against-speed charts as SVG files, for where no script runs: READMEs, mail, issues.

They are drawn from the same data, in the same colours, shapes and axes as the plotly figures, and follow the reader's
light or dark by themselves.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from gprojci_dashboards import theme
from gprojci_dashboards.charts.history import HistoryData, Value, shown
from gprojci_dashboards.charts.pareto import NAMED_AT_MOST, ParetoData, frontier, label_places, looks_of
from gprojci_dashboards.readable import SHA_DIGITS, percent, tensor_name

WIDTH, HEIGHT = 760, 400
_LEFT, _RIGHT, _BOTTOM = 80, 20, 52
_LETTER = 6.3
"""Width of a letter of the small text in pixels, on the wide side."""
# Outlines around (0, 0) with a radius of 1; the names are plotly's.
_SHAPES = {
    "circle": "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0Z",
    "diamond": "M0-1.25L1.1 0L0 1.25L-1.1 0Z",
    "square": "M-.9-.9H.9V.9H-.9Z",
    "triangle-up": "M0-1.15L1.1.85H-1.1Z",
    "triangle-down": "M0 1.15L1.1-.85H-1.1Z",
    "cross": "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "x": "M-1-.5L-.5-1L0-.5L.5-1L1-.5L.5 0L1 .5L.5 1L0 .5L-.5 1L-1 .5L-.5 0Z",
    "star": "M0-1.2L.3-.4L1.15-.37L.48.15L.7.97L0 .5L-.7.97L-.48.15L-1.15-.37L-.3-.4Z",
    "hexagon": "M0-1.1L.95-.55V.55L0 1.1L-.95.55V-.55Z",
    "pentagon": "M0-1.1L1.05-.34L.65.9H-.65L-1.05-.34Z",
}
_DASHES = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "11 4"}


@dataclass(frozen=True)
class _Axis:
    """Values to pixels: `low` and `high` are exponents of ten where it is logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        at = math.log10(value) if self.log else value
        return self.start + (at - self.low) / (self.high - self.low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        at = math.log10(value) if self.log and value > 0 else value
        return self.low <= at <= self.high


@dataclass
class _Picture:
    """The elements of an SVG and the colours they use."""

    title: str
    subtitle: str
    top: float = 76
    parts: list[str] = field(default_factory=list)
    colours: dict[str, str] = field(default_factory=dict)

    def ink(self, tone: theme.Tone | str) -> str:
        """Class of a colour, given as a tone or by its light reading."""
        light = tone if isinstance(tone, str) else tone.light
        return self.colours.setdefault(light, f"c{len(self.colours)}")

    def text(self, x: float, y: float, words: str, tone: theme.Tone | str, more: str = "") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{self.ink(tone)}" {more}>{html.escape(words)}</text>')

    def line(self, points: Iterable[tuple[float, float]], tone: theme.Tone | str, width: float, dash: str = "") -> None:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<path d="M{path}" class="{self.ink(tone)} line" stroke-width="{width}"{dashed}/>')

    def mark(self, x: float, y: float, size: float, symbol: str, tone: theme.Tone | str) -> None:
        """A filled shape of plotly's name, hollow where the name says `-open`."""
        hollow = symbol.endswith("-open")
        kind = "open" if hollow else "full"
        shape = _SHAPES[symbol.removesuffix("-open")]
        self.parts.append(
            f'<path d="{shape}" class="{self.ink(tone)} {kind}" '
            f'transform="translate({x:.1f} {y:.1f}) scale({size})" stroke-width="{1.6 / size:.2f}"/>'
        )

    def legend(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Name, colour and symbol of each series, over the plane, which begins below."""
        x, y = float(_LEFT), 66.0
        for name, colour, symbol in entries:
            width = 22 + _LETTER * len(name)
            if x + width > WIDTH - _RIGHT:
                x, y = float(_LEFT), y + 18
            self.mark(x + 5, y, 4.5, symbol, colour)
            self.text(x + 14, y + 4, name, theme.INK)
            x += width
        self.top = y + 18

    def frame(self, x_name: str, y_name: str, x: _Axis, y: _Axis) -> None:
        self.line([(x.start, y.end), (x.start, y.start), (x.end, y.start)], theme.AXIS, 1)
        self.text((x.start + x.end) / 2, HEIGHT - 10, x_name, theme.MUTED, 'text-anchor="middle"')
        middle = (y.start + y.end) / 2
        self.text(14, middle, y_name, theme.MUTED, f'text-anchor="middle" transform="rotate(-90 14 {middle:.1f})"')

    def rows(self, x: _Axis, y: _Axis, ticks: Iterable[tuple[float, str]]) -> None:
        for value, label in ticks:
            if y.holds(value):
                at = y.place(value)
                self.line([(x.start, at), (x.end, at)], theme.GRID, 1)
                self.text(x.start - 6, at + 4, label, theme.MUTED, 'text-anchor="end"')

    def limit(self, x: _Axis, y: _Axis, value: float, words: str) -> None:
        at = y.place(value)
        self.line([(x.start, at), (x.end, at)], theme.LIMIT, 1.5, "7 5")
        self.text(x.start + 4, at - 5, words, theme.LIMIT)

    def svg(self) -> str:
        dark = theme.dark_map()
        surface = self.ink(theme.SURFACE)
        head = [(24, "title", theme.INK, self.title), (43, "", theme.MUTED, self.subtitle)]
        words = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" class="{surface} full"/>'
        words += "".join(
            f'<text x="16" y="{y}" class="{self.ink(tone)} {kind}">{html.escape(text)}</text>'
            for y, kind, tone, text in head
        )
        rules = "".join(f".{name}{{color:{light}}}" for light, name in self.colours.items())
        night = "".join(f".{name}{{color:{dark[light]}}}" for light, name in self.colours.items())
        family = theme.FONT.replace('"', "'")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'role="img"><title>{html.escape(f"{self.title}: {self.subtitle}")}</title><style>'
            f"text{{font:11px {family};fill:currentColor}}.title{{font-size:15px;font-weight:600}}"
            ".line{fill:none;stroke:currentColor;stroke-linejoin:round}.full{fill:currentColor}"
            f".open{{fill:none;stroke:currentColor}}{rules}@media(prefers-color-scheme:dark){{{night}}}</style>"
            f"{words}{''.join(self.parts)}</svg>"
        )


def _steps(low: float, high: float, count: int = 6) -> list[float]:
    """About so many round values between two."""
    raw = (high - low) / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
    first = math.ceil(low / step)
    return [round(number * step, 12) for number in range(first, math.floor(high / step) + 1)]


def _linear(values: list[float], start: float, end: float) -> _Axis:
    low, high = min(values), max(values)
    air = (high - low) * 0.12 or abs(high) * 0.1 or 1.0
    return _Axis(low - air, high + air, start, end)


def history(data: HistoryData, title: str, subtitle: str) -> str:
    """One metric over commits as an SVG file; what failed the gate is a cross.

    Raises:
        ValueError: there is no value to draw.
    """
    log = data.unit == "fraction"
    places = {commit.position for commit in data.commits}
    drawn: list[tuple[str, list[Value]]] = []
    for line in data.lines:
        kept = [each for each in line.values if each.position in places and (each.value > 0 or not log)]
        if kept:
            drawn.append((line.backend, kept))
    values = [each.value for _, kept in drawn for each in kept]
    if not values:
        raise ValueError("there is no value to draw")
    picture = _Picture(title, subtitle)
    picture.legend((backend, *theme.look(backend)[:2]) for backend, _ in drawn)
    reach = values + ([data.limit] if data.limit is not None else [])
    bottom = HEIGHT - _BOTTOM
    x = _Axis(min(places) - 0.4, max(places) + 0.4, _LEFT, WIDTH - _RIGHT)
    low, high = (theme.log_range(reach, pad=0.1) if log else None) or (0.0, 0.0)
    y = _Axis(low, high, bottom, picture.top, True) if log else _linear(reach, bottom, picture.top)
    if log:
        ticks = list(zip(*theme.log_ticks(reach), strict=True))
    else:
        ticks = [(value, shown(value, data.unit)) for value in _steps(y.low, y.high) if value >= 0]
    picture.rows(x, y, ticks)
    every = max(1, math.ceil(len(data.commits) / 9))
    for commit in data.commits[::-1][::every]:
        picture.text(
            x.place(commit.position), bottom + 18, commit.sha[:SHA_DIGITS], theme.MUTED, 'text-anchor="middle"'
        )
    if data.limit is not None:
        picture.limit(x, y, data.limit, f"gate: {shown(data.limit, data.unit)}")
    for backend, kept in drawn:
        colour, symbol, dash = theme.look(backend)
        points = [(x.place(each.position), y.place(each.value)) for each in kept]
        picture.line(points, colour, 2, _DASHES[dash])
        for each, (across, down) in zip(kept, points, strict=True):
            failed = each.verdict == "fail"
            picture.mark(across, down, 6 if failed else 4, "x" if failed else symbol, theme.LIMIT if failed else colour)
    against = f", relative to {data.against}" if data.against else ""
    picture.frame("commit, oldest on the left", f"{data.metric}{against}", x, y)
    return picture.svg()


def pareto(data: ParetoData, title: str, subtitle: str) -> str:
    """Accuracy against speed as an SVG file: marks with their intervals, the frontier, the gate, the subject's path.

    Raises:
        ValueError: there is no mark to draw.
    """
    marks = tuple(mark for mark in data.marks if mark.error > 0 and mark.time > 0)
    if not marks:
        raise ValueError("there is no mark to draw")
    picture = _Picture(title, subtitle)
    crowded = len(marks) > NAMED_AT_MOST
    looks = looks_of(marks)
    if crowded:
        picture.legend((mark.backend, *looks[mark.backend]) for mark in marks)
    steps = [step for step in data.path if step.error > 0 and step.time > 0]
    errors = [each for mark in marks for each in (mark.error, mark.error_low, mark.error_high)]
    errors += [step.error for step in steps] + ([data.ceiling] if data.ceiling is not None else [])
    times = [each for mark in marks for each in (mark.time, mark.time_low, mark.time_high)]
    times += [step.time for step in steps]
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    low, high = theme.log_range(errors) or (0.0, 1.0)
    y = _Axis(low, high, bottom, picture.top if crowded else 60, True)
    if max(times) / min(times) > 5:
        low, high = theme.log_range(times, pad=0.12) or (0.0, 1.0)
        x = _Axis(low, high, _LEFT, right, True)
        across = list(zip(theme.ratio_ticks()["tickvals"], theme.ratio_ticks()["ticktext"], strict=True))
    else:
        x = _linear([*times, min(times) + 0.2], _LEFT, right)
        across = [(value, f"{value:g}×") for value in _steps(x.low, x.high) if value > 0]
    picture.rows(x, y, zip(*theme.log_ticks(errors), strict=True))
    for value, label in across:
        if x.holds(value):
            picture.text(x.place(value), bottom + 18, label, theme.MUTED, 'text-anchor="middle"')
    if data.ceiling is not None:
        picture.limit(x, y, data.ceiling, f"gate: {percent(data.ceiling)}")
    edge = frontier(marks)
    if len(edge) > 1:
        corners = [(x.place(edge[0].time), y.place(edge[0].error))]
        for mark in edge[1:]:
            corners += [(corners[-1][0], y.place(mark.error)), (x.place(mark.time), y.place(mark.error))]
        picture.line(corners, theme.FRONTIER, 1.5, "2 3")
    for mark in marks:
        path = [(x.place(step.time), y.place(step.error)) for step in steps if step.backend == mark.backend]
        colour, symbol = looks[mark.backend]
        here = (x.place(mark.time), y.place(mark.error))
        if path:
            picture.line([*path, here], colour, 1)
            for there in path:
                picture.mark(*there, 2.5, "circle", colour)
        up, down = (y.place(each) if each > 0 else here[1] for each in (mark.error_high, mark.error_low))
        picture.line([(here[0], up), (here[0], down)], colour, 1.2)
        picture.line([(x.place(mark.time_low), here[1]), (x.place(mark.time_high), here[1])], colour, 1.2)
    places = label_places(marks)
    for mark in sorted(marks, key=lambda mark: mark.role == "subject"):
        colour, symbol = looks[mark.backend]
        subject = mark.role == "subject"
        across_at, down_at = x.place(mark.time), y.place(mark.error)
        hollow = "" if subject or mark.role == "anchor" else "-open"
        picture.mark(across_at, down_at, 6.5 if subject else 5, f"{symbol}{hollow}", colour)
        if not crowded:
            vertical, side = places[mark.backend].split()
            anchor, aside = {"left": ("end", -9), "right": ("start", 9)}.get(side, ("middle", 0))
            shift = -10 if vertical == "top" else 17
            bold = ' font-weight="600"' if subject else ""
            picture.text(across_at + aside, down_at + shift, mark.backend, colour, f'text-anchor="{anchor}"{bold}')
    label = f"{data.timed} time, relative to {data.anchor} (lower is faster)"
    picture.frame(label, f"{tensor_name(data.tensor)} error, {data.statistic} over slices", x, y)
    return picture.svg()
