"""The pages of training runs: what the table says, what is drawn and how runs of different lengths are compared."""

from __future__ import annotations

import gzip
import math
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import training_example as example
from fastapi.testclient import TestClient

from gprojci_service import demo
from gprojci_service.access import service as access
from gprojci_service.app import create_app
from gprojci_service.pages import training_curves
from gprojci_service.pages.training_curves import Grid
from gprojci_service.training import service as training
from gprojci_suite.contract.training import Curve

sys.path.insert(0, str(Path(__file__).parent))
from page_reading import figures, words_of
from serving import serving
from test_pages_seed import settings_for, training_story


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An instance with the story of four backends, one of which broke down with one seed."""
    app = create_app(settings_for(tmp_path_factory.mktemp("training")))
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        training.take(session, "story", training_story().dumps(), sent_by="gpu-host", limit=2**20)
    with TestClient(app) as client:
        yield client


def test_the_table_says_what_came_of_each_backend(told: TestClient) -> None:
    page = told.get("/training/story").text
    assert re.findall(r'<td class="num over">([^<]+)<', page) == ["+0.2335", "102%"]
    text = words_of(page)
    assert "Minus fp32" in text
    losses = "1.6639 1.6639 … NaN +0.2335 0.0000 … +0.4669, at steps 10 … 40"
    parted = "step 40 1 of 2 runs step 3 1 of 2 runs"
    assert f"fa3 1 completed, 1 diverged seeds 0, 1 {losses} 1.5 1.5 … ∞ 102% 50.0 ms 50.0 ms {parted}" in text
    assert "gproj 2 completed seeds 0, 1 1.6689 1.6639 … 1.6739 0.0000 1.5 0.2% 50.0 ms 50.0 ms –" in text
    assert "fa3, seed 1: diverged: the loss is NaN" in text
    assert "Runs that shared the device with others have no step time" in text
    assert "2 layers of width 64, 2 heads of 32, 132,000 parameters" in text
    assert "Code gproj aaaaaaaa, gproj package-bbbbbbbb, mine" in text
    assert "The runs of gproj were not all computed by the same code." in text
    assert "Muon 0.02, momentum 0.95, AdamW 0.003, no weight decay" in text
    page = told.get("/training").text
    assert re.findall(r'<td class="num over">([^<]+)<', page) == ["NaN", "102%"]
    row = words_of(page)
    assert "story 2 layers of width 64, 2 × 64 tokens a step fa3, " in row
    assert "2 40 of 40 7 completed, 1 diverged NaN fa3 102% fa3 unknown" in row


def test_four_pictures_share_the_steps_and_the_table_has_their_numbers(told: TestClient) -> None:
    text = told.get("/training/story").text
    (figure,) = figures(text)
    titles = [note["text"] for note in figure["layout"]["annotations"]]
    assert titles == [
        f"<b>{title}</b>"
        for title in ("Loss minus that of fp32", "Gradient norm", "Key drift (offset ÷ spread)", "dQ error, worst head")
    ]
    crosses = [trace for trace in figure["data"] if trace["mode"] == "markers"]
    assert [(trace["x"], trace["text"]) for trace in crosses] == [([10], ["seed 1 diverged at step 20"])] * 2
    errors = {trace["name"]: trace["y"] for trace in figure["data"] if trace.get("yaxis") == "y4" and "marker" in trace}
    assert errors["fa3"] == pytest.approx([0.002, 0.016, 0.128, 1.024])
    assert "fp32" not in {trace["name"] for trace in figure["data"] if trace["yaxis"] == "y"}
    assert "40, fa3 0 1.5 21× 102%" in words_of(text)


def test_layers_are_drawn_where_they_are_asked_for(told: TestClient) -> None:
    for detail, panels in (("layers", 4), ("projections", 3), ("signs", 4), ("no such", None)):
        found = figures(told.get(f"/training/story?detail={detail}&backend=gproj").text)[1:]
        if panels is None:
            assert found == []
            continue
        (figure,) = found
        assert len(figure["layout"]["annotations"]) == panels
        assert {trace["name"] for trace in figure["data"]} == {"layer 0", "layer 1"}
    assert figures(told.get("/training/story?detail=layers&backend=nobody").text)[1:]


def test_a_captured_set_leads_to_the_inputs_and_back(told: TestClient) -> None:
    text = told.get("/training/story").text
    (link,) = re.findall(r'href="(/inputs#input-[0-9a-f]{64})">late-keybias<', text)
    assert "fa3, seed 0, step 40, layers 0, 1: dQ off by 102%" in words_of(text)
    assert "fa3-seed0-L0.safetensors fa3, seed 0, step 40, layer 0: dQ off by 102% not known here" in words_of(text)
    page = told.get("/inputs").text
    assert f'id="{link.partition("#")[2]}"' in page
    assert '<a href="/training/story">story: fa3, seed 0, step 40</a>' in page


def test_without_an_fp32_run_the_loss_itself_is_drawn_and_the_page_says_so() -> None:
    alone = training_curves.story(example.report((example.run("fa3", 0, 8.0),)))
    assert (alone.panels[0].title, alone.panels[0].zero) == ("Loss", False)
    assert alone.panels[0].lines[0].middle[-1] == pytest.approx(example.run("fa3", 0, 8.0).curve.loss[-1])
    assert training_curves.story(example.report(())).panels == ()


def test_runs_that_were_thinned_differently_are_compared_over_the_same_steps() -> None:
    fine = Curve(tuple(range(1, 101)), tuple(float(step) for step in range(1, 101)), (1.0,) * 100)
    coarse = Curve((25, 50, 75, 100), (13.0, 38.0, 63.0, 88.0), (1.0,) * 4)  # means of the same losses
    grid = Grid.over((fine.steps, coarse.steps))
    assert grid.edges == (25, 50, 75, 100)
    assert [value for _, value in grid.means(fine, coarse).values()] == [0.0] * 4
    shorter = Curve((25, 40), (14.0, 34.0), (1.0, 1.0))
    assert list(grid.means(shorter, fine).values()) == [(25, 1.0), (40, pytest.approx(1.0))]
    broken = Curve((25, 50), (13.0, math.nan), (1.0, math.inf))
    assert list(grid.means(broken, coarse)) == [0]
    assert grid.largest((10, 20, 30), (2.0, math.nan, 1.0)) == {0: (20, 2.0), 1: (30, 1.0)}
    assert Grid.over(((200, 1000, 2000, 3000, 4000),)).edges == (800, 1600, 2400, 3200, 4000)
    assert len(Grid.over((tuple(range(1, 601)),)).edges) == training_curves.POINTS


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Address of a running service, and the header of a token that may write."""
    app = create_app(settings_for(tmp_path))
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        secret = access.create_token(session, "gpu-host", "write")[1]
    with serving(app) as url:
        yield url, {"Authorization": f"Bearer {secret}"}


def test_a_directory_is_followed_while_a_training_goes_on(running: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    url, headers = running
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "half.json").write_text('{"kind": "gprojci-')  # somebody is writing it
    token = headers["Authorization"].removeprefix("Bearer ")
    command = [sys.executable, "-P", "-m", "gprojci_service", "training", "send", str(folder), "--follow"]
    process = subprocess.Popen(
        [*command, "--every", "0.1", "--url", url, "--token", token], stdout=subprocess.PIPE, text=True
    )
    fa3, *rest = example.report().runs
    (folder / "fa3.json").write_text(example.report((fa3,)).dumps())
    wait_for_runs(url, 1)
    (folder / "half.json").write_text(example.report((fa3, *rest[:2])).dumps())
    wait_for_runs(url, 3)
    process.send_signal(signal.SIGSTOP)
    (folder / "last.json").write_text(example.report((rest[2],)).dumps())
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=30)[0] == f"{url}/training/keybias\n"
    assert process.returncode == 0
    wait_for_runs(url, 4)


def wait_for_runs(url: str, count: int) -> None:
    """Until so many runs have come."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        answer = httpx.get(f"{url}/api/v1/training/keybias")
        if answer.status_code == 200 and len(answer.json()["runs"]) == count:
            return
        time.sleep(0.05)
    raise AssertionError(f"not {count} runs")


def test_the_demo_shows_reports_of_either_kind(running: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    url, headers = running
    file = tmp_path / "h200-training.json.gz"
    file.write_bytes(gzip.compress(replace(example.report(), name="h200").dumps().encode()))
    assert demo._show_example(url, headers, "h200-training", file) == "/training/h200"
    step = Path(__file__).parents[2] / "kernels" / "suite" / "examples" / "h200-gproj-step.json.gz"
    assert demo._show_example(url, headers, "h200-gproj-step", step) == "/reports/1"
