"""The pages through the real application, over a SQLite database seeded with decided jobs."""

from __future__ import annotations

import html
import io
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from gprojci_service.app import create_app
from gprojci_service.cli import cli
from gprojci_service.gate import overrides
from gprojci_service.jobs.repository import next_queued
from gprojci_service.models import GithubReport, Job, Project, now
from gprojci_service.pages import job_list
from gprojci_suite.contract import bundled, input_file

sys.path.insert(0, str(Path(__file__).parent))
from test_pages_report import report_of
from test_pages_seed import NASTY, Seed, addresses, settings_for


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An instance on its first day."""
    app = create_app(settings_for(tmp_path_factory.mktemp("empty")))
    app.state.database.migrate()
    with TestClient(app) as client:
        yield client


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, dict[str, int]]]:
    """An instance with a project's life in it, and job numbers by name."""
    settings = settings_for(tmp_path_factory.mktemp("pages"))
    app: FastAPI = create_app(settings)
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        seed = Seed(session, settings)
        jobs = seed.everything() | seed.examples()
        session.info.clear()  # the messages of a real instance; no broker is here
    with TestClient(app) as client:
        yield client, jobs


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An instance with a project that fails, one that passes, one without a job, and one that is archived."""
    settings = settings_for(tmp_path_factory.mktemp("several"))
    app = create_app(settings)
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        seed = Seed(session, settings)
        head = seed.commit("1a2b", "Break dQ", 1)
        seed.measured(seed.job(head, None, 1), report_of(head, None, broken=True, base_broken=False))
        seed.project = seed.add(Project(name="z/green", clone_url="https://github.com/z/green.git"))
        head = seed.commit("3c4d", "Mend dQ", 2)
        seed.measured(seed.job(head, None, 2), report_of(head, None, broken=False, base_broken=False))
        seed.add(Project(name="a/new", clone_url="https://github.com/a/new.git"))
        seed.add(Project(name="old/one", clone_url="https://github.com/old/one.git", archived_at=now()))
        session.info.clear()
    with TestClient(app) as client:
        yield client


class Outline(HTMLParser):
    """What a reader of the page's structure sees: landmarks, tables, scripts, duplicate ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def figures(text: str) -> list[dict[str, Any]]:
    """The plotly figures embedded in a page."""
    return [
        json.loads(block) for block in re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    ]


def test_every_page_is_sound(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    for address in addresses(jobs):
        answer = client.get(address)
        assert answer.status_code == 200, address
        outline = Outline(answer.text)
        assert len(outline.having("main")) == 1, address
        assert len(outline.having("h1")) == 1, address
        assert [link for link in outline.having("a") if link.get("aria-current")], address
        assert len(outline.having("table")) == len(outline.having("caption")), address
        ids = [attributes["id"] for _, attributes in outline.tags if attributes.get("id")]
        assert len(ids) == len(set(ids)), address
        for _, attributes in outline.tags:
            assert not [name for name in attributes if name == "style" or name.startswith("on")], address
        for script in outline.having("script"):
            assert script.get("type") == "application/json" or str(script.get("src")).startswith("/static/"), address
        for link in [*outline.having("link"), *outline.having("img")]:
            shown = str(link.get("href") or link.get("src"))
            assert shown.startswith(("/static/", "/badges/")) or link.get("rel") == "alternate", address


def test_pages_carry_a_strict_policy(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, _ = lived_in
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe-inline" not in policy
    assert "unsafe-eval" not in policy
    assert "http" not in policy


def test_what_users_write_is_escaped(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    for address in addresses(jobs):
        text = client.get(address).text
        assert NASTY not in text, address
        assert "<b>Bold" not in text, address
    assert "&lt;script&gt;alert" in client.get("/").text
    for figure in figures(client.get("/projects/gproj-ci/gproj/history").text):
        assert NASTY not in json.dumps(figure)


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


def section(text: str, name: str) -> str:
    """A panel of a page, by the id of its heading."""
    start = text.index(f'<section class="panel" aria-labelledby="{name}">')
    return text[start : text.index("</section>", start)]


def words_of(text: str) -> str:
    """What is read of a piece of markup, chart data left out."""
    plain = re.sub(r"<script.*?</script>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", plain)).split())


def test_a_job_shows_everything_its_report_holds(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    text = client.get(f"/jobs/{jobs['broken']}?symmetry=late-keybias").text
    step = words_of(section(text, "step"))
    assert "gproj tiny 205 ms +4.7% +4.1% … +5.2% 18% 7.4807 3.0 GiB" in step
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
    assert "during sm 1,980 MHz sw_power_cap" in environment
    assert words_of(section(text, "accuracy-speed"))


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
            "Kernels of gproj: 2 in 2.50 ms, at most 255 registers of a thread, at worst 36 spilled to memory",
        ),
        ("", "Kernels of zerosum: 1 in 1.25 ms, at most 160 registers of a thread, none spilled to memory"),
        ("", "Kernels of sdpa-math: 1 in 1.25 ms"),
    ]
    assert "_forward_kernel forward 2 1.25 ms 168 0 64 KiB 16 × 64 × 1 256 × 1 × 1" in speed
    assert "cutlass_80_tensorop_bf16> forward 2 1.25 ms – – – –" in speed
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
    assert "The GPU was slowed down over the session: sw_power_cap." in page
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


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("q=%237", ["broken"]),
        ("q=6F70", ["broken"]),
        ("q=projection+skip", ["broken"]),
        ("q=mallory&state=pass", ["fixed"]),
        ("q=100%25", []),
        ("state=queued", ["queued"]),
        ("kind=pull_request&sort=oldest", ["broken", "fixed", "waiting"]),
        ("kind=pull_request&hardware=cpu&project=gproj-ci/gproj", ["waiting", "fixed", "broken"]),
        ("kind=bisect", []),
        ("kind=nonsense&q=%237&hardware=abacus", ["broken"]),
    ],
)
def test_jobs_are_filtered_searched_and_sorted(
    lived_in: tuple[TestClient, dict[str, int]], query: str, names: list[str]
) -> None:
    client, jobs = lived_in
    page = client.get(f"/jobs?{query}").text
    shown = re.findall(r'<th scope="row" class="title-cell"><a href="/jobs/(\d+)">', page)
    assert [int(number) for number in shown] == [jobs[name] for name in names]
    assert ("No job" in page) == (not names)


def test_a_long_list_of_jobs_is_paged_with_what_is_chosen(
    lived_in: tuple[TestClient, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, jobs = lived_in
    monkeypatch.setattr(job_list, "PAGE", 2)
    for sort, order in (("newest", -1), ("oldest", 1)):
        seen, address = [], f"/jobs?q=main&sort={sort}"
        while address:
            page = client.get(address).text
            seen += [int(number) for number in re.findall(r'title-cell"><a href="/jobs/(\d+)">', page)]
            found = re.search(r'<a class="button" href="([^"]+)">(?:Older|Later) jobs', page)
            address = html.unescape(found.group(1)) if found else ""
            assert not address or "q=main" in address
        assert seen == sorted(set(seen), reverse=order < 0)
        assert len(seen) == sum(not name.endswith(".json.gz") for name in jobs) - 3  # without the pull requests'


def test_the_queue_stands_in_the_order_of_claiming(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    app = create_app(settings)
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        seed = Seed(session, settings)
        first, second = seed.project, seed.add(Project(name="z/green", clone_url="https://github.com/z/green.git"))
        jobs = (
            (first, "backfill", 2),
            (first, "push", 0),
            (first, "push", 0),
            (second, "push", 0),
            (first, "bisect", 1),
        )
        for place, (project, kind, priority) in enumerate(jobs):
            seed.project = project
            job = seed.job(seed.commit(f"{place}abc", kind, place), None, place)
            job.kind, job.priority = kind, priority
        session.info.clear()
    with TestClient(app) as client:
        page = client.get("/jobs?state=queued").text
    claimed = []
    with app.state.database.session(writes=True) as session:
        while (turn := next_queued(session, "cpu")) is not None:
            turn.state, turn.started_at = "running", datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=len(claimed))
            session.flush()
            claimed.append(turn.id)
    assert [int(number) for number in re.findall(r'title-cell"><a href="/jobs/(\d+)">', page)] == claimed
    assert claimed == [2, 4, 3, 5, 1]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["a/new", "gproj-ci/gproj", "z/green"]),
        ("sort=newest", ["z/green", "gproj-ci/gproj", "a/new"]),
        ("sort=regressions", ["gproj-ci/gproj", "a/new", "z/green"]),
        ("state=fail", ["gproj-ci/gproj"]),
        ("state=pass", ["z/green"]),
        ("state=none", ["a/new"]),
        ("state=archived", ["old/one"]),
        ("q=GPROJ", ["gproj-ci/gproj"]),
        ("q=nobody", []),
        ("page=2", []),
    ],
)
def test_projects_are_filtered_searched_and_sorted(several: TestClient, query: str, names: list[str]) -> None:
    page = several.get(f"/projects?{query}").text
    assert re.findall(r'<th scope="row" class="nowrap"><a href="/projects/([^"]+)">', page) == names
    assert ("No project" in page) == (not names)


def test_a_search_for_the_name_of_an_order_stays_in_the_addresses(several: TestClient) -> None:
    page = several.get("/projects?q=name&sort=newest").text
    assert 'href="/projects?state=fail&amp;q=name&amp;sort=newest"' in page


def test_the_reader_reaches_the_cause_in_two_clicks(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    overview = client.get("/").text
    assert "gproj: dQ error on late-keybias is" in overview
    assert f'href="/jobs/{jobs["broken"]}"' in overview
    assert 'id="repro-command"' in client.get(f"/jobs/{jobs['broken']}").text


def test_the_overview_says_what_changed_since_the_last_green_commit(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    app = create_app(settings)
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        jobs = Seed(session, settings).broken_main()
        session.info.clear()
    with TestClient(app) as client:
        page = client.get("/").text
        steps = figures(client.get("/?time=step_ratio_anchor&case=1x4x1024x64.causal.bfloat16").text)[0]
    assert page.count('<div class="since">') == 1
    assert f'First that did not pass: <a href="/jobs/{jobs["push-e7f8"]}">' in page
    assert "Name the package as before" in page
    assert "2 judged commits" in page
    assert re.search(r"on late-keybias 0.195% → <strong[^>]*>33.2%</strong> \(170×\)", page)
    assert f"compare?base={'d6e7' * 3}&amp;head={'f809' * 3}" in page
    assert figures(page)[0]["layout"]["xaxis"]["title"]["text"].startswith("forward + backward time")
    assert steps["layout"]["xaxis"]["title"]["text"].startswith("training step time")
    (gproj,) = [trace for trace in steps["data"] if trace.get("name") == "gproj"]
    assert gproj["x"] == [1.047]


def test_a_build_error_since_the_last_green_commit_has_no_values(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    page = client.get("/").text
    assert f'First that did not pass: <a href="/jobs/{jobs["build_error"]}">' in page
    assert "Compare both commits" not in page


def test_a_job_says_what_was_told_to_github(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    app = create_app(settings)
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        seed = Seed(session, settings)
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
        session.info.clear()
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


def test_compare_puts_what_matters_first(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, _ = lived_in
    text = client.get("/projects/gproj-ci/gproj/compare?base=5e6f&head=6f70").text
    body = text[text.index('id="what-changed"') :]
    assert body.index("worse") < body.index("same</span>")
    assert "Both commits were measured interleaved in one session" in text
    assert "21,333×" in text
    apart = client.get("/projects/gproj-ci/gproj/compare?base=1a2b&head=7081").text
    assert "measured in different sessions" in apart


def test_compare_shows_which_heads_changed(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, _ = lived_in
    page = client.get("/projects/gproj-ci/gproj/compare?base=5e6f&head=6f70").text
    heat = next(figure["data"][0] for figure in figures(page) if figure["data"][0].get("y") == ["L1", "L3"])
    assert heat["x"] == ["h0", "h1", "h2", "h3"]
    assert heat["text"][0][0] == "22,400×"  # 0.2% → 4,480%
    assert "of calls within" in page
    assert "What differs between the two sessions" not in page
    apart = client.get("/projects/gproj-ci/gproj/compare?base=1a2b&head=6f70").text
    assert "What differs between the two sessions" in apart
    assert "<del>2.13.0+cpu</del>" in apart


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("base=zz&head=6f70", "hexadecimal"),
        ("base=ffff&head=6f70", "No commit known"),
        ("base=92a3&head=6f70", "no result"),
    ],
)
def test_compare_explains_what_is_wrong(lived_in: tuple[TestClient, dict[str, int]], query: str, words: str) -> None:
    client, _ = lived_in
    answer = client.get(f"/projects/gproj-ci/gproj/compare?{query}")
    assert answer.status_code == 404
    assert words in answer.text
    field = re.search(
        r'<input type="text" name="base"[^>]*aria-invalid="true"[^>]*><span class="problem"[^>]*>.*?</span>',
        answer.text,
        re.DOTALL,
    )
    assert field
    assert words in field.group()


def test_the_address_holds_the_choices(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    text = client.get(
        "/projects/gproj-ci/gproj/history?metric=dk_error&input=synthetic:offset&backend=gproj&backend=fp32"
    ).text
    assert '<option value="dk_error" selected>' in text
    assert '<option value="synthetic:offset" selected>' in text
    names = {trace["name"] for trace in figures(text)[0]["data"]}
    assert names == {"gproj", "fp32"}
    page = client.get(f"/jobs/{jobs['broken']}?input=early-rope&tensor=o").text
    assert "O on early-rope" in page


def test_a_mark_says_which_commit_it_is_and_whose(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    traces = {trace["name"]: trace for trace in figures(lived_in[0].get("/projects/gproj-ci/gproj").text)[0]["data"]}
    assert "<br>5e6f5e6f Document the zero-sum forward · Ada Lovelace<extra>" in traces["gproj"]["hovertemplate"]
    assert "Ada" not in traces["sdpa-flash"]["hovertemplate"]
    steps = traces["gproj, earlier commits"]["text"]
    assert any(step.startswith("<b>4d5e4d5e</b> Tidy up &lt;script&gt;") for step in steps)
    assert all("· Ada Lovelace<br>" in step for step in steps if step)


def test_a_worst_value_in_a_pull_request_is_marked_in_the_history(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    traces = figures(client.get("/projects/gproj-ci/gproj/history?input=late-keybias").text)[0]["data"]
    gproj = next(trace for trace in traces if trace["name"] == "gproj")
    failed = [url for url, symbol in zip(gproj["customdata"], gproj["marker"]["symbol"], strict=True) if symbol == "x"]
    assert failed == [f"/jobs/{jobs['broken']}"]


def test_unknown_things_are_pages_too(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, _ = lived_in
    for address, status in (
        ("/jobs/999999", 404),
        ("/projects/no/body", 404),
        ("/jobs/x", 422),
        ("/jobs?before=0", 422),
    ):
        answer = client.get(address)
        assert answer.status_code == status, address
        assert answer.headers["content-type"].startswith("text/html"), address
    assert client.get("/jobs/99999999999999999999").status_code in (404, 422)


def test_an_empty_instance_offers_three_steps(empty: TestClient) -> None:
    text = empty.get("/").text
    assert text.count("<li><h2>") == 3
    assert "/webhooks/github" in text
    assert "gprojci.toml" in text
    assert "GitHub cannot reach this address" in text
    for command in re.findall(r"<code>gprojci ([a-z ]+) [A-Z]", text):
        assert reduce(lambda group, word: group.commands[word], command.split(), cli) is not None
    for address in ("/jobs", "/inputs", "/reports", "/workers"):
        assert empty.get(address).status_code == 200


def test_an_empty_instance_shows_the_captures_of_the_ruler(
    empty: TestClient, lived_in: tuple[TestClient, dict[str, int]]
) -> None:
    text = empty.get("/inputs").text
    panels = [words_of(part) for part in text.split('<section class="panel"')[1:]]
    assert len(panels) == len(bundled.names())
    for name in bundled.names():
        data = bundled.read(name)
        content_hash = input_file.check_stream(io.BytesIO(data), len(data))[1]
        assert sum(content_hash in part for part in panels) == 1, name
    story = next(part for part in panels if "late-keybias" in part)
    assert story is panels[0], "the one with a training run comes first"
    assert "comes with the ruler" in story
    assert "batch 1, heads" in story
    assert "Statistics with the first report" in story
    assert "Last used by no report yet" in story
    assert len(figures(text)) == 1
    names = re.findall(r'<h2 id="input-[^"]*">([a-z:-]+)', lived_in[0].get("/inputs").text)
    assert sorted(names) == sorted({*names, "early-keybias", "late-keybias"}), "a set that was used stands there once"


def test_static_files_are_kept_for_ever_under_their_hash(
    empty: TestClient, lived_in: tuple[TestClient, dict[str, int]]
) -> None:
    text = lived_in[0].get("/").text
    plotly = re.search(r'src="(/static/plotly-[0-9a-f]+\.js)"', text)
    assert plotly is not None
    answer = empty.get(plotly[1])
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-encoding"] == "gzip"
    assert empty.get("/static/plotly-000000000000.js").status_code == 404
    sheet = re.search(r'href="(/static/site\.css\?v=[0-9a-f]+)"', text)
    assert sheet is not None
    assert "immutable" in empty.get(sheet[1]).headers["cache-control"]
    for bad in ("/static/../endpoints.py", "/static/%2e%2e/endpoints.py", "/static/nothing.css"):
        assert empty.get(bad).status_code == 404


def test_private_instances_keep_their_pages(tmp_path: Path) -> None:
    settings = settings_for(tmp_path).model_copy(update={"public_read": False})
    app = create_app(settings)
    app.state.database.migrate()
    with TestClient(app) as client:
        assert client.get("/").status_code == 401
        assert client.get("/static/site.css").status_code == 200


def test_the_comparison_says_what_was_accepted_once(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    app = create_app(settings)
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        seed = Seed(session, settings)
        job = session.get_one(Job, seed.everything()["broken"])
        accepted = {"limit_key": "dq_error_ceiling", "backend": "gproj", "author": "ada", "reason": NASTY}
        overrides.accept(session, settings, seed.project, head_sha=job.head_sha, source="api", **accepted)
        session.info.clear()
    with TestClient(app) as client:
        page = client.get("/projects/gproj-ci/gproj/compare?base=5e6f&head=6f70").text
    assert page.count("accepted by ada: ") == 1  # on three input sets
    assert NASTY not in page


def test_a_worker_without_a_sandbox_is_marked(service):
    hello = {"name": "bare", "hardware": "cpu", "device": "cpu", "device_name": "a CPU", "boot_id": "first-boot"}
    service.worker("/hello", {**hello, "environment": {"sandboxed": True}})
    assert "sandbox" not in service.client.get("/workers").text
    service.worker("/hello", {**hello, "environment": {"sandboxed": False}})
    page = service.client.get("/workers").text
    assert "no sandbox" in page
    assert "runs without a sandbox" in page
