"""The page of a job: everything its report holds, what it differs in, what was told of it, and how it moves."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gprojci_service.models import GithubReport

sys.path.insert(0, str(Path(__file__).parent))
from page_reading import figures, section, words_of
from test_pages_seed import seeding


def test_the_failing_job_names_tensor_input_head_value_and_limit(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    text = client.get(f"/jobs/{jobs['broken']}").text
    assert "The gate fails" in text
    for word in ("dQ error", "late-keybias", "L1.b0.h0", "33.2%", "0.35%", "4,480%"):
        assert word in text, word
    assert "gprojci-suite bench --inputs" in text
    assert 'data-copy="repro-command"' in text
    assert "needs an NVIDIA GPU of compute capability 9.0" in text
    assert f"/api/v1/jobs/{jobs['broken']}/slices.csv" in text
    assert "fetching the commit" in text
    assert "\x1b" not in text
    assert "[32m" not in text
    assert "/projects/gproj-ci/gproj/compare?base=5e6f5e6f5e6f&amp;head=6f706f706f70" in text


def test_a_job_shows_everything_its_report_holds(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    text = client.get(f"/jobs/{jobs['broken']}?symmetry=late-keybias").text
    step = words_of(section(text, "step"))
    assert "gproj tiny 205 ms +4.7% +4.1% … +5.2% 18% 7.4807 3 GiB" in step
    assert "void: the GPU was slowed down" in step
    surface = figures(section(text, "surface"))[0]
    assert surface["data"][0]["y"] == ["0", "300"]
    assert {trace["type"] for trace in surface["data"]} == {"heatmap"}
    symmetry = words_of(section(text, "symmetry"))
    assert "gproj 0.06% worst 90% at L1.b0.h0" in symmetry
    assert "sdpa-flash 73%" in symmetry
    determinism = words_of(section(text, "determinism"))
    assert "gproj as it is differs by up to 0.012% same bits" in determinism
    assert (
        'gproj deterministic=True takes no keyword deterministic <script>alert("x")</script> not possible'
        in determinism
    )
    speed = words_of(section(text, "throughput"))
    assert "311 TFLOP/s, 42%" in speed
    assert "742 TFLOP/s in a square BF16 matrix product" in speed
    assert "2.5 GiB" in speed
    environment = words_of(section(text, "environment"))
    assert "during SM 1,980 MHz power cap (software)" in environment
    part = section(text, "accuracy-speed")
    paths = [trace for trace in figures(part)[0]["data"] if trace.get("name") == "gproj, earlier commits"]
    assert [(len(trace["x"]), "the base" in trace["text"][0]) for trace in paths] == [(2, True)]
    assert "A line leads from the base to what is under test." in words_of(part)


def test_a_job_shows_launches_graphs_and_kernels(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    text = client.get(f"/jobs/{jobs['broken']}").text
    part = section(text, "throughput")
    speed = words_of(part)
    assert "Launch, forward Launch, backward CUDA graph, backward Peak memory" in speed
    assert "310 µs 31.0 ms longer than it runs 2.90 ms 2.5 GiB" in speed
    assert '31.0 ms longer than it runs not possible capture failed: <script>alert("x")</script> 2.5 GiB' in speed
    assert "20 interleaved pairs each over 5 processes, none void" in speed
    assert "the mean of the processes’ medians" in speed
    assert "Median Interval Pairs Processes Void pairs" in speed
    summaries = re.findall(r"<summary([^>]*)>(Kernels of [^<]*)</summary>", part)
    assert summaries == [
        (
            ' class="is-neutral"',
            "Kernels of gproj that are not as in the base: 2, up to 15 more registers of a thread, "
            "up to 32 more of them spilled",
        ),
        (
            ' class="is-neutral"',
            "Kernels of gproj: 2 in 2.50 ms, at most 255 registers of a thread, at worst 36 spilled to memory",
        ),
        (
            ' class="is-neutral"',
            "Kernels of gproj (base): 3 in 3.75 ms, at most 240 registers of a thread, at worst 4 spilled to memory",
        ),
        ("", "Kernels of zerosum: 1 in 1.25 ms, at most 160 registers of a thread, none spilled to memory"),
        ("", "Kernels of sdpa-math: 1 in 1.25 ms"),
    ]
    assert "_forward_kernel forward 2 1.25 ms 168 0 64 KiB 16 × 64 × 1 256 × 1 × 1" in speed
    assert "cutlass_80_tensorop_bf16> forward 2 1.25 ms – – – –" in speed
    assert "backward 1.25 ms 240 → 255 4 → 36 64 KiB _row_sums backward gone 32 0 64 KiB" in speed
    environment = words_of(section(text, "environment"))
    assert "Built in head 41 s" in environment
    assert "Started in zerosum 8.0 s, gproj (base) 7.0 s, gproj 6.0 s" in environment


def test_a_job_shows_how_near_each_pass_comes_to_the_roof(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    page = client.get(f"/jobs/{jobs['broken']}").text
    (chart,) = [figure for figure in figures(page) if figure["layout"]["xaxis"]["title"]["text"].startswith("arith")]
    roof, point = chart["data"][0], chart["data"][1]
    assert roof["y"][1:] == [742.0, 742.0]
    # 1 x 4 x 1024 x 64, causal, BF16: 4·4·1024²·64/2 FLOPs over four tensors and the log-sum-exp
    assert point["x"] == [pytest.approx(4 * 4 * 1024**2 * 64 / 2 / (2 * 4 * 4 * 1024 * 64 + 4 * 4 * 1024))]
    assert "42% of 742 TFLOP/s" in page
    assert 'id="roofline"' not in client.get(f"/jobs/{jobs['fixed']}").text


def test_a_job_shows_what_differs_from_the_session_of_its_base(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    page = client.get(f"/jobs/{jobs['broken']}").text
    rows = re.findall(r'<tr><th scope="row">(\w+)</th><td>(.*?)</td><td><ins>(.*?)</ins>', page)
    assert rows == [("torch", "<del>2.13.0+cpu</del>", "2.14.0+cpu"), ("triton", "–", "3.6")]
    assert f'differs from the base commit\'s own session, <a href="/jobs/{jobs["push-5e6f"]}">' in page
    assert "The GPU was slowed down over the session: power cap (software)." in page
    same = client.get(f"/jobs/{jobs['push-5e6f']}").text
    assert f'the same as in the base commit\'s own session, <a href="/jobs/{jobs["push-4d5e"]}">' in same
    assert "own session" not in client.get(f"/jobs/{jobs['push-1a2b']}").text


def test_what_a_report_does_not_hold_has_no_place(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    text = client.get(f"/jobs/{jobs['fixed']}").text
    speed = words_of(section(text, "throughput"))
    assert "20 interleaved pairs each, none void" in speed
    for word in ("Launch", "CUDA graph", "Kernels of", "Processes", "processes’", "Peak memory"):
        assert word not in speed, word
    environment = words_of(section(text, "environment"))
    assert "Built in" not in environment
    assert "Started in" not in environment


def test_a_choice_keeps_the_others(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    text = client.get(f"/jobs/{jobs['broken']}?surface=dk&tensor=o&symmetry=1x1x16384x64.causal.bfloat16").text
    kept = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', section(text, "accuracy"))
    assert {"surface": "dk", "symmetry": "1x1x16384x64.causal.bfloat16"}.items() <= dict(kept).items()
    assert "dK: 2 offsets" in words_of(section(text, "surface"))
    assert "1x1x16384x64.causal.bfloat16" in words_of(section(text, "symmetry"))


def test_an_example_of_real_hardware_is_a_page(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, numbers = lived_in
    for name, number in numbers.items():
        if not name.endswith(".json.gz"):
            continue
        report = client.get(f"/api/v1/reports/{number}").json()
        text = client.get(f"/reports/{number}").text
        assert report["environment"]["device_name"] in words_of(section(text, "environment"))
        assert report["repro"] in words_of(section(text, "repro"))
        for part in ("throughput", "step", "surface", "accuracy"):
            assert (f'aria-labelledby="{part}"' in text) == bool(report.get(part)), (name, part)
        measured = {entry["backend"] for entry in report["backends"] if entry["status"] == "ok"}
        assert [backend for backend in measured if f"{backend}" not in words_of(text)] == []
        failed = [entry["backend"] for entry in report["backends"] if entry["status"] != "ok"]
        assert [backend for backend in failed if backend not in words_of(section(text, "failed"))] == []


def test_a_job_says_what_was_told_to_github(tmp_path: Path) -> None:
    with seeding(tmp_path) as (app, seed):
        job = seed.job(
            seed.commit("1a2b", "First", 0),
            None,
            0.1,
            state="finished",
            failure_kind="lost_worker",
            detail="three workers were lost",
        )
        seed.add(
            GithubReport(
                job_id=job.id,
                kind="commit_status",
                phase="decided",
                method="POST",
                path="/repos/x",
                state="recorded",
                payload={"description": "nothing is gated"},
                detail="recorded, not sent: no GitHub credentials are set",
            )
        )
        number = job.id
    with TestClient(app) as client:
        text = client.get(f"/jobs/{number}").text
    assert "recorded, not sent: no GitHub credentials are set" in text
    assert "nothing is gated" in text
    assert "three workers were lost" in text


def test_a_running_job_moves_until_it_has_ended(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    page = client.get(f"/jobs/{jobs['running']}").text
    assert 'hx-trigger="every 2s"' in page
    assert "vendor/htmx.min.js" in page
    fragment = client.get(f"/jobs/{jobs['running']}/live")
    assert "<html" not in fragment.text
    assert 'hx-get="/jobs/' in fragment.text
    assert "hx-refresh" not in fragment.headers
    assert "measuring late-keybias: 12 of 40" in fragment.text
    assert "to come" in fragment.text
    ended = client.get(f"/jobs/{jobs['broken']}/live")
    assert ended.headers["hx-refresh"] == "true"
    assert "hx-get" not in ended.text
    assert "htmx" not in client.get(f"/jobs/{jobs['broken']}").text.replace("htmx-config", "")
