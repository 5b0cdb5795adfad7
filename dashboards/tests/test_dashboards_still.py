"""The still pictures: sound SVG with everything in its frame, in both readings, of linear and logarithmic axes."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from gprojci_dashboards import still, theme
from gprojci_dashboards.charts import history, pareto

SVG = "{http://www.w3.org/2000/svg}"
COMMITS = tuple(history.Commit(place, f"{place:x}" * 40, "<b>", "Ada", "") for place in range(15))


def curve(unit: str, level: float, limit: float | None = None) -> history.HistoryData:
    names = ("gproj", "fa3", "a name of one's own <i>")
    lines = tuple(
        history.Line(
            name,
            tuple(history.Value(at, level * (1 + at), verdict="fail" if at == 3 else "") for at in range(15)),
        )
        for name in names
    )
    return history.HistoryData("dQ error", unit, COMMITS, lines, limit, "the anchor")


def cloud(count: int, slowest: float) -> pareto.ParetoData:
    marks = tuple(
        pareto.Mark(f"peer-{place}", "peer", 0.3 / 3**place, 0.2 / 3**place, 0.9 / 3**place, at, at * 0.98, at * 1.02)
        for place, at in enumerate(1 + (slowest - 1) * each / (count - 1) for each in range(count))
    )
    subject = pareto.Mark("gproj", "subject", 0.002, 0.0, 0.003, 1.1, 1.1, 1.1)
    step = pareto.Step("gproj", "a" * 40, "before", 0.004, 1.3)
    return pareto.ParetoData((subject, *marks), "fa3 & others", ceiling=0.0035, path=(step,))


DRAWN = {
    "errors": still.history(curve("fraction", 0.002, 0.0035), "o/r <u>", "dQ & more"),
    "ratios": still.history(curve("ratio", 1.1), "o/r", ""),
    "seconds": still.history(curve("seconds", 2e-4), "o/r", ""),
    "one value": still.history(
        replace(curve("ratio", 1.0), lines=(history.Line("gproj", (history.Value(0, 1.0),)),)), "o/r", ""
    ),
    "named": still.pareto(cloud(4, 1.5), "o/r", "dQ"),
    "crowded": still.pareto(cloud(14, 90.0), "o/r", "dQ"),
    "alone": still.pareto(pareto.ParetoData((cloud(2, 2).marks[0],), "fa3"), "o/r", ""),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_sound_and_nothing_leaves_its_frame(name: str) -> None:
    root = ElementTree.fromstring(DRAWN[name])
    assert root.find(f"{SVG}title") is not None
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.attrib["x"]) <= still.WIDTH
        assert 0 <= float(text.attrib["y"]) <= still.HEIGHT
    for path in root.iter(f"{SVG}path"):
        moved = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", path.get("transform", ""))
        pairs = [moved.groups()] if moved else re.findall(r"([-\d.]+) ([-\d.]+)", path.attrib["d"])
        for across, down in pairs:
            assert 0 <= float(across) <= still.WIDTH, path.attrib
            assert 0 <= float(down) <= still.HEIGHT, path.attrib


@pytest.mark.parametrize("name", DRAWN)
def test_every_colour_has_its_dark_reading(name: str) -> None:
    day, night = re.split(r"@media\(prefers-color-scheme:dark\)", DRAWN[name])
    light = dict(re.findall(r"\.(c\d+)\{color:([^}]+)\}", day))
    dark = dict(re.findall(r"\.(c\d+)\{color:([^}]+)\}", night))
    assert light.keys() == dark.keys()
    assert {key: theme.dark_map()[colour] for key, colour in light.items()} == dark


def test_what_failed_is_a_cross_and_the_frontier_is_dotted() -> None:
    assert DRAWN["errors"].count(still._SHAPES["x"]) == 3
    assert 'stroke-dasharray="2 3"' in DRAWN["named"]
    assert set(still._SHAPES) == set(theme.SYMBOLS)
    assert set(still._DASHES) == set(theme.DASHES)


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ValueError, match="no value"):
        still.history(history.HistoryData("dQ error", "fraction", (), ()), "o/r", "")
    with pytest.raises(ValueError, match="no mark"):
        still.pareto(pareto.ParetoData((), "fa3"), "o/r", "")


def linear(channel: str) -> float:
    value = int(channel, 16) / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def luminance(colour: str) -> float:
    red, green, blue = (linear(colour[at : at + 2]) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("reading", ["light", "dark"])
def test_series_stand_out_from_the_background(reading: str) -> None:
    surface = luminance(getattr(theme.SURFACE, reading))
    for tone in theme.SERIES:
        mine = luminance(getattr(tone, reading))
        contrast = (max(mine, surface) + 0.05) / (min(mine, surface) + 0.05)
        assert contrast >= 3, tone
