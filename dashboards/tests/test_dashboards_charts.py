"""Every chart draws its data, empty data too, and reads in both themes."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from typing import Any

import pytest

from gprojci_dashboards import charts, theme
from gprojci_dashboards.charts import (
    bisection,
    call_times,
    error_distribution,
    error_surface,
    head_differences,
    history,
    paired_ratios,
    pareto,
    roofline,
    slices_heatmap,
    training_curves,
    training_story,
)
from gprojci_dashboards.readable import percent

MARKS = (
    pareto.Mark("gproj", "subject", 0.0019, 0.0018, 0.0021, 1.2, 1.18, 1.22, url="/jobs/6"),
    pareto.Mark("emulated-fa3", "peer", 0.332, 0.2, 44.8, 1.1, 1.08, 1.12, note="emulated"),
    pareto.Mark("sdpa-math", "anchor", 0.0017, 0.0016, 0.0018, 1.0, 1.0, 1.0),
    pareto.Mark("sdpa-flash", "peer", 0.33, 0.2, 40.0, 0.3, 0.29, 0.31),
)
COMMITS = (
    history.Commit(0, "a" * 40, "first <b>", "Ada", "2026-01-05"),
    history.Commit(1, "b" * 40, "second", "Bob", "2026-01-06"),
)
FULL: dict[str, Any] = {
    "bisection": bisection.BisectionData(
        "dQ error",
        9,
        (
            bisection.Measured(8, "a" * 40, "bad", 1, None, note="NaN or Inf"),
            bisection.Measured(4, "b" * 40, "good", 2, 1.01, 0.99, 1.03, url="/jobs/2"),
            bisection.Measured(6, "c" * 40, "unsure", 3, 1.2, 1.0, 1.4),
            bisection.Measured(5, "d" * 40, "skipped", 4, None, note="build error: <b>"),
            bisection.Measured(7, "e" * 40, "bad", 5, 170.0, 160.0, 180.0),
        ),
        good=4,
        bad=7,
        threshold=13.0,
    ),
    "call_times": call_times.CallTimesData(
        "backward", (call_times.Calls("base", (0.001, 0.0011, 0.0012)), call_times.Calls("head <b>", (0.0009, 0.001)))
    ),
    "head_differences": head_differences.DifferenceData(
        "dQ",
        ("L1", "L<b>3"),
        ("h0", "h1"),
        ((0.002, 0.002), (0.0, None)),
        ((44.8, 0.0019), (0.001, 0.002)),
    ),
    "roofline": roofline.RooflineData(
        742.0,
        4100.0,
        (
            roofline.Point("gproj", "gproj", "forward", 300.0, 560.0, 0.001),
            roofline.Point("gproj", "gproj", "backward", 400.0, 480.0, 0.003),
            roofline.Point("sdpa-math", "sdpa-<b>math", "forward_backward", 20.0, 40.0, 0.1),
        ),
    ),
    "pareto": pareto.ParetoData(
        MARKS, "sdpa-math", ceiling=0.0035, path=(pareto.Step("gproj", "c" * 40, "before", 0.002, 1.3, "/jobs/1"),)
    ),
    "history": history.HistoryData(
        "dQ error",
        "fraction",
        COMMITS,
        (
            history.Line(
                "gproj", (history.Value(0, 0.002, url="/jobs/1"), history.Value(1, 0.3, 0.2, 0.4, "fail", "/jobs/2"))
            ),
        ),
        0.0035,
        changes=(history.Change("gproj", 1, 149.0), history.Change("gproj", 0, -0.02), history.Change("gone", 1, 0.1)),
    ),
    "error_distribution": error_distribution.DistributionData(
        "dQ",
        (
            error_distribution.Side("base", (0.002, 0.001), ("L1.b0.h0", "L1.b0.h1")),
            error_distribution.Side("head", (0.3, 44.0), ("L1.b0.h0", "L1.b0.h1")),
        ),
        0.0035,
    ),
    "error_surface": error_surface.SurfaceData(
        "dQ",
        (0.0, 300.0),
        (1.0, 16.0),
        tuple(error_surface.Facet(name, ((0.002, 0.003), (44.0, None))) for name in ("gproj", "fa3", "fp32", "<b>odd")),
        0.0035,
    ),
    "slices_heatmap": slices_heatmap.HeatmapData(
        "dQ", ("L1.b0.h0", "L1.b0.h1"), ("gproj", "fp32"), ((0.3, 0.00001), (math.nan, None)), 0.0035
    ),
    "paired_ratios": paired_ratios.PairedRatiosData(
        (paired_ratios.Comparison("head ÷ base", (1.01, 1.02, 0.99), 1.01, 0.99, 1.02, itself=True),), 0.1
    ),
    "training_curves": training_curves.CurvesData(
        (
            training_curves.Panel(
                "Loss minus that of fp32",
                "number",
                (
                    training_curves.Line("fa3", (0, 10), (0.0, -0.1), (-0.01, -0.2), (0.01, math.nan)),
                    training_curves.Line("<b>odd", (0,), (0.5,), (0.5,), (0.5,)),
                ),
                logarithmic=False,
                zero=True,
            ),
            training_curves.Panel(
                "dQ error",
                "fraction",
                (
                    training_curves.Line(
                        "fa3",
                        (0, 10),
                        (0.002, 43.0),
                        (0.001, 41.0),
                        (0.003, 45.0),
                        (training_curves.End(10, 45.0, "seed 1 <diverged>"), training_curves.End(9, math.nan, "")),
                    ),
                    training_curves.Line("gproj", (0, 10), (0.0, 0.002), (0.0, 0.002), (0.0, 0.002)),
                ),
            ),
        )
    ),
    "training_story": training_story.TrainingData(
        (training_story.Record(200, 2.4, 0.008, 0.005, 1.5), training_story.Record(4000, 0.6, 43.0, 0.05, 40.0)),
        "FlashAttention-3",
    ),
}
EMPTY: dict[str, Any] = {
    "bisection": bisection.BisectionData("dQ error", 0, ()),
    "call_times": call_times.CallTimesData("backward", ()),
    "head_differences": head_differences.DifferenceData("dQ", (), (), (), ()),
    "roofline": roofline.RooflineData(0.0, 0.0, ()),
    "pareto": pareto.ParetoData((), "sdpa-math"),
    "history": history.HistoryData("dQ error", "fraction", (), ()),
    "error_distribution": error_distribution.DistributionData("dQ", ()),
    "error_surface": error_surface.SurfaceData("dQ", (), (), ()),
    "slices_heatmap": slices_heatmap.HeatmapData("dQ", (), (), ()),
    "paired_ratios": paired_ratios.PairedRatiosData(()),
    "training_curves": training_curves.CurvesData(()),
    "training_story": training_story.TrainingData((), "FlashAttention-3"),
}


def test_charts_are_found_by_name() -> None:
    assert charts.names() == sorted(FULL)
    with pytest.raises(charts.ChartDoesNotExist, match="no chart is called 'pie'; there are bisection, "):
        charts.load("pie")


def test_listing_imports_no_chart() -> None:
    code = (
        "import sys; from gprojci_dashboards import charts; charts.names(); "
        "print([name for name in sys.modules if name.startswith('gprojci_dashboards.charts.')])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


@pytest.mark.parametrize("name", sorted(FULL))
@pytest.mark.parametrize("data", [FULL, EMPTY], ids=["full", "empty"])
def test_figure_is_small_strict_json(name: str, data: dict[str, Any]) -> None:
    chart = charts.load(name)
    assert chart.TITLE

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    sketch = chart.figure(data[name])
    figure = json.loads(sketch.to_json(), parse_constant=refuse)
    assert len(json.dumps(figure["layout"]["template"])) < 100
    assert figure["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
    assert len(json.dumps(figure)) < 20_000
    sketch.checked()  # plotly knows every property and value


@pytest.mark.parametrize("name", sorted(FULL))
def test_every_colour_has_a_dark_reading(name: str) -> None:
    figure = json.loads(charts.load(name).figure(FULL[name]).to_json())
    dark = figure["layout"].pop("meta")["dark"]
    used = set(re.findall(r'"(#[0-9a-f]{6}|rgba\([^)]*\))"', json.dumps(figure)))
    assert used - {"rgba(0,0,0,0)"} <= set(dark)


def contrast(first: str, second: str) -> float:
    """WCAG contrast ratio of two hex colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_stand_out_on_both_backgrounds() -> None:
    for tone in (*theme.SERIES, theme.LIMIT, theme.GOOD):
        assert contrast(tone.light, theme.SURFACE.light) >= 3, tone
        assert contrast(tone.dark, theme.SURFACE.dark) >= 3, tone
    for tone in (theme.INK, theme.MUTED):
        assert contrast(tone.light, theme.SURFACE.light) >= 4.5
        assert contrast(tone.dark, theme.SURFACE.dark) >= 4.5


def test_a_series_never_depends_on_colour_alone() -> None:
    assert len(set(theme.SYMBOLS)) == len(theme.SYMBOLS) >= len(theme.SERIES)
    assert theme.look("gproj") == theme.look("gproj")
    assert theme.look("gproj")[1] != theme.look("emulated-fa3")[1]
    assert theme.look("someone-elses-kernel") == theme.look("someone-elses-kernel")


def test_light_spellings_are_unique() -> None:
    tones = [
        *theme.SERIES,
        *(tone for _, tone in theme.HEAT),
        theme.INK,
        theme.MUTED,
        theme.GRID,
        theme.AXIS,
        theme.SURFACE,
    ]
    assert len({tone.light for tone in tones}) == len(tones)


def test_frontier_holds_what_nobody_beats() -> None:
    assert [mark.backend for mark in pareto.frontier(MARKS)] == ["sdpa-flash", "sdpa-math"]


def test_names_of_neighbours_go_to_opposite_sides() -> None:
    close = (MARKS[1], pareto.Mark("emulated-fa3-unfused", "peer", 0.33, 0.2, 44.0, 1.13, 1.1, 1.15), MARKS[3])
    places = pareto.label_places(close)
    assert places["emulated-fa3"].endswith("left")
    assert places["emulated-fa3-unfused"].endswith("right")


def test_messages_cannot_bring_markup() -> None:
    text = charts.load("history").figure(FULL["history"]).to_json()
    assert "first &lt;b&gt;" in text or "first \\u0026lt;b" in text


def test_history_marks_where_a_level_changed_and_which_way() -> None:
    traces = json.loads(charts.load("history").figure(FULL["history"]).to_json())["data"]
    marks = {trace["name"]: (trace["x"], trace["text"], trace["marker"]["symbol"]) for trace in traces[1:]}
    assert marks == {
        "worse from here on": ([1], ["150×"], "triangle-up"),
        "better from here on": ([0], ["−2%"], "triangle-down"),
    }


def test_memory_over_commits_has_ticks_of_powers_of_two() -> None:
    values = tuple(history.Value(position, mib * 2**20) for position, mib in enumerate((643, 1500)))
    commits = tuple(history.Commit(position, f"{position}" * 40, "m", "a", "w") for position in range(2))
    data = history.HistoryData("peak memory", "bytes", commits, (history.Line("gproj", values),), limit=2**30)
    figure = json.loads(charts.load("history").figure(data).to_json())
    assert figure["layout"]["yaxis"]["ticktext"] == ["0", "256 MiB", "512 MiB", "768 MiB", "1 GiB", "1.25 GiB"]
    assert figure["layout"]["yaxis"]["tickvals"][4] == 2**30
    assert figure["data"][0]["text"][0] == "643 MiB"
    assert "gate: 1 GiB" in json.dumps(figure)


def test_heat_map_turns_at_the_limit_and_keeps_nan_visible() -> None:
    trace = json.loads(charts.load("slices_heatmap").figure(FULL["slices_heatmap"]).to_json())["data"][0]
    assert trace["z"][0][0] > 0 > trace["z"][0][1]
    assert trace["z"][1] == [1.0, None]
    assert trace["text"][1][0] == "NaN"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0035, "0.35%"), (44.8, "4,480%"), (0.1, "10%"), (1e-8, "1.0e-06%"), (-math.inf, "−∞")]
)
def test_percent(value: float, text: str) -> None:
    assert percent(value) == text


def test_one_wild_pair_does_not_hide_the_rest_and_is_counted() -> None:
    ratios = (*(1 + 0.001 * index for index in range(39)), 9.0)
    comparison = paired_ratios.Comparison("head ÷ base", ratios, 1.02, 1.01, 1.03)
    chart = paired_ratios.figure(paired_ratios.PairedRatiosData((comparison,), 0.1)).checked()
    assert chart.layout.xaxis.range[1] < 1.2
    assert any("1 of the pairs beyond" in (note.text or "") for note in chart.layout.annotations)


def test_the_surface_draws_each_backend_in_a_box_of_its_own() -> None:
    figure = json.loads(charts.load("error_surface").figure(FULL["error_surface"]).to_json())
    layout = figure["layout"]
    boxes = [(layout[f"xaxis{end}"]["domain"], layout[f"yaxis{end}"]["domain"]) for end in ("", "2", "3", "4")]
    for place, (across, down) in enumerate(boxes):
        for other_across, other_down in boxes[place + 1 :]:
            apart = across[1] <= other_across[0] or other_across[1] <= across[0]
            assert apart or down[1] <= other_down[0] or other_down[1] <= down[0]
    assert [trace.get("showscale") for trace in figure["data"]] == [True, False, False, False]
    assert "&lt;b&gt;odd" in json.dumps(layout["annotations"])
    assert figure["data"][0]["z"][1] == [1.0, None]


def test_training_curves_share_steps_and_legend_and_show_who_ended_early() -> None:
    figure = training_curves.figure(FULL["training_curves"]).checked()
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1]
    assert figure.layout.xaxis.anchor == "y2"
    assert [trace.name for trace in figure.data if trace.showlegend] == ["fa3", "&lt;b&gt;odd", "gproj"]
    lines = {(trace.name, trace.yaxis): trace for trace in figure.data if trace.mode == "lines+markers"}
    assert lines["gproj", "y2"].y == (0.002,), "a logarithm has no zero"
    assert lines["fa3", "y"].y == (0.0, -0.1)
    assert lines["fa3", "y"].marker.symbol == lines["fa3", "y2"].marker.symbol
    bands = {trace.yaxis: trace.y for trace in figure.data if trace.fill == "toself"}
    assert bands == {"y": (0.01, -0.01), "y2": (0.003, 45.0, 41.0, 0.001)}
    (ends,) = [trace for trace in figure.data if trace.mode == "markers"]
    assert (ends.x, ends.text) == ((10,), ("seed 1 &lt;diverged&gt;",))
    assert figure.layout.yaxis2.ticktext[-1] == "10,000%"
    layers = tuple(
        training_curves.Line(f"layer {number}", (1, 2), (1.0, 2.0), (0.5, 1.5), (1.5, 2.5)) for number in range(24)
    )
    parts = training_curves.figure(
        training_curves.CurvesData((training_curves.Panel("Norm", "number", layers),), parts=True)
    )
    assert len({(trace["line"]["color"], trace["marker"]["symbol"]) for trace in parts.data}) == 24
    assert len({trace["line"]["color"] for trace in parts.data[:8]}) == 8


def test_the_norms_of_a_run_that_explodes_are_written_by_powers_of_ten() -> None:
    line = training_curves.Line("fa3", (2, 4), *(((20.0, 2.2e17),) * 3))
    panels = (training_curves.Panel("Gradient norm", "number", (line,)),)
    figure = json.loads(training_curves.figure(training_curves.CurvesData(panels)).to_json())
    assert figure["layout"]["yaxis"]["ticktext"][:5:2] == ["10", "100,000", "1e+09"]


def test_ratios_that_lie_far_apart_get_a_logarithmic_axis() -> None:
    near = paired_ratios.Comparison("near", (1.0, 1.1), 1.05, 1.0, 1.1)
    far = paired_ratios.Comparison("far", (14.0, 15.0), 14.5, 14.0, 15.0, void_pairs=2, processes=5)
    chart = charts.load("paired_ratios")
    axes = [
        json.loads(chart.figure(paired_ratios.PairedRatiosData(rows)).to_json())["layout"]["xaxis"]
        for rows in ((near,), (near, far))
    ]
    assert axes[0].get("type") is None
    assert axes[1]["type"] == "log"
    assert 10 ** axes[1]["range"][0] < 1.0
    assert 10 ** axes[1]["range"][1] > 15.0
    assert "2 pairs over 5 processes, 2 void" in chart.figure(paired_ratios.PairedRatiosData((far,))).to_json()


def test_what_is_compared_with_itself_has_an_axis_and_the_margin_of_its_own() -> None:
    itself = paired_ratios.Comparison("head ÷ base", (1.0, 1.01), 1.005, 1.0, 1.01, itself=True)
    peer = paired_ratios.Comparison("peer ÷ anchor", (0.3, 0.31), 0.305, 0.3, 0.31)
    layout = paired_ratios.figure(paired_ratios.PairedRatiosData((peer, itself), 0.1)).layout
    assert layout["xaxis"]["range"][0] > 0.9
    assert layout["xaxis2"]["range"][0] < 0.31
    assert layout["yaxis"]["domain"][0] > layout["yaxis2"]["domain"][1]
    assert [shape["xref"] for shape in layout["shapes"] if shape["x0"] == 1.1] == ["x"]
    alone = paired_ratios.figure(paired_ratios.PairedRatiosData((peer,), 0.1)).layout
    assert "xaxis2" not in alone
    assert not [shape for shape in alone["shapes"] if shape["x0"] == 1.1]


def test_many_marks_are_told_apart_by_the_legend() -> None:
    names = [f"peer-{number}" for number in range(40)]
    marks = tuple(
        pareto.Mark(name, "peer", 0.01 + place / 1000, 0, 0.1, 1 + place, 1, 2) for place, name in enumerate(names)
    )
    chart = charts.load("pareto")
    figure = json.loads(chart.figure(pareto.ParetoData(marks, "fa3")).to_json())
    traces = [trace for trace in figure["data"] if trace.get("name") in names]
    assert len({(trace["marker"]["color"], trace["marker"]["symbol"]) for trace in traces}) == len(names)
    assert {trace["mode"] for trace in traces} == {"markers"}
    assert figure["layout"]["showlegend"] is True
    few = json.loads(chart.figure(pareto.ParetoData(marks[:4], "fa3")).to_json())
    assert few["layout"]["showlegend"] is False
    assert "markers+text" in {trace["mode"] for trace in few["data"]}


def test_what_a_commit_says_is_no_template() -> None:
    mark = pareto.Mark("gproj", "subject", 0.0019, 0.0018, 0.0021, 1.2, 1.18, 1.22, commit="1a2b <b>%{x}")
    (trace,) = [
        each for each in pareto.figure(pareto.ParetoData((mark,), "fa3")).checked().data if each.name == "gproj"
    ]
    assert trace.hovertemplate.endswith("<br>1a2b &lt;b&gt;%&#123;x}<extra></extra>")


def test_what_remains_of_a_search_is_a_band_and_what_is_not_finite_stands_on_top() -> None:
    figure = bisection.figure(FULL["bisection"])
    (band,) = [shape for shape in figure.layout["shapes"] if shape["type"] == "rect"]
    assert (band["x0"], band["x1"]) == (4.5, 7.5)
    bad = next(trace for trace in figure.data if trace["name"] == "bad")
    assert bad["x"] == [8, 7]
    assert bad["y"][0] > bad["y"][1] == 170.0
    assert bad["text"] == ["1", "5"]


@pytest.mark.parametrize(
    ("base", "head", "changed"),
    [
        (0.002, 0.004, 2.0),
        (None, 0.004, None),
        (0.002, None, None),
        (0.002, math.nan, math.inf),
        (math.inf, math.inf, 1.0),
        (0.0, 0.0, 1.0),
        (0.0, 0.1, math.inf),
    ],
)
def test_a_change_of_an_error(base: float | None, head: float | None, changed: float | None) -> None:
    assert head_differences.change(base, head) == changed


def test_the_roof_bends_where_memory_stops_to_limit() -> None:
    data = FULL["roofline"]
    line = roofline.figure(data).data[0]
    assert line["x"][1] == pytest.approx(742e3 / 4100)
    assert roofline.roof(data, 10.0) == pytest.approx(41.0)
    assert roofline.roof(data, 1e6) == 742.0
