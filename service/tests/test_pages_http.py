"""The pages through the real application, over a SQLite database seeded with decided jobs."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gprojci_service.app import create_app
from gprojci_service.cli import cli
from gprojci_service.gate import overrides
from gprojci_service.models import Job
from gprojci_suite.contract import bundled, input_file

sys.path.insert(0, str(Path(__file__).parent))
from page_reading import Outline, figures, words_of
from test_pages_seed import NASTY, addresses, seeding, settings_for


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An instance on its first day."""
    app = create_app(settings_for(tmp_path_factory.mktemp("empty")))
    app.state.database.migrate()
    with TestClient(app) as client:
        yield client


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


def test_the_reader_reaches_the_cause_in_two_clicks(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, jobs = lived_in
    overview = client.get("/").text
    assert "gproj: dQ error on late-keybias is" in overview
    assert f'href="/jobs/{jobs["broken"]}"' in overview
    assert 'id="repro-command"' in client.get(f"/jobs/{jobs['broken']}").text


def test_the_overview_says_what_changed_since_the_last_green_commit(tmp_path: Path) -> None:
    with seeding(tmp_path) as (app, seed):
        jobs = seed.broken_main()
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


def test_compare_puts_what_matters_first(lived_in: tuple[TestClient, dict[str, int]]) -> None:
    client, _ = lived_in
    text = client.get("/projects/gproj-ci/gproj/compare?base=5e6f&head=6f70").text
    body = text[text.index('id="what-changed"') :]
    assert body.index("worse") < body.index("same</span>")
    assert "Both commits were measured interleaved in one session" in text
    assert "21,300×" in text
    assert "same peak memory zerosum tiny 3 GiB 3 GiB 1.000×" in words_of(body)
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
    for bad in ("/static/", "/static/../endpoints.py", "/static/%2e%2e/endpoints.py", "/static/nothing.css"):
        assert empty.get(bad).status_code == 404


def test_private_instances_keep_their_pages(tmp_path: Path) -> None:
    settings = settings_for(tmp_path).model_copy(update={"public_read": False})
    app = create_app(settings)
    app.state.database.migrate()
    with TestClient(app) as client:
        assert client.get("/").status_code == 401
        assert client.get("/static/site.css").status_code == 200


def test_the_comparison_says_what_was_accepted_once(tmp_path: Path) -> None:
    with seeding(tmp_path) as (app, seed):
        job = seed.session.get_one(Job, seed.everything()["broken"])
        accepted = {"limit_key": "dq_error_ceiling", "backend": "gproj", "author": "ada", "reason": NASTY}
        overrides.accept(seed.session, seed.settings, seed.project, head_sha=job.head_sha, source="api", **accepted)
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
