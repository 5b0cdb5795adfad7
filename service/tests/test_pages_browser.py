"""Every page in a real Chromium: no blocked resource, no error, charts drawn, nothing that axe-core objects to, no
sideways scrolling from 360 to 2,560 pixels; what the keyboard reaches, what is printed, whose time is shown."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from fastapi import FastAPI

from gprojci_service.access import audit, sessions
from gprojci_service.access import service as access
from gprojci_service.app import create_app
from gprojci_service.database import Database
from gprojci_service.models import Job
from gprojci_service.settings import Settings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "browser"))
from find_chromium import ARGUMENTS, find_chromium
from regression_history import History
from serving import serving
from test_pages_seed import addresses, seeding, settings_for

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
AXE = (Path(axe.__file__).parent / "axe.min.js").read_text()
CHROMIUM = find_chromium()
pytestmark = pytest.mark.browser
if CHROMIUM is None and not os.environ.get("CI"):
    pytest.skip("no Chromium here; `make browser` gets one", allow_module_level=True)


@dataclass(frozen=True)
class Served:
    """Two running services: one with the seeded story, one on its first day."""

    base: str
    empty: str
    jobs: dict[str, int]
    """Numbers of jobs and of imported reports by name."""
    database: Database
    cookie: str
    """Session of somebody who is signed in."""


def migrated(settings: Settings) -> FastAPI:
    """A service over an empty database."""
    app = create_app(settings)
    app.state.database.migrate()
    return app


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with seeding(tmp_path_factory.mktemp("browser")) as (app, seed):
        jobs = seed.everything() | seed.broken_main() | seed.examples()
        cookie = sessions.start(seed.settings, access.create_token(seed.session, "Ada", "admin")[0])[0]
        detail = {"job_id": "7", "head_sha": "a" * 40, "looked": "yes"}
        audit.record(seed.session, audit.Actor("Ada", "session"), "approve_job", detail, project="gproj-ci/gproj")
    database = app.state.database
    history = History(database)
    history.measure(30, dq_error=0.002, forward_ratio_anchor=1.2)
    history.measure(12, dq_error=0.0026, forward_ratio_anchor=1.26)
    history.look()
    first_day = migrated(settings_for(tmp_path_factory.mktemp("empty")))
    with serving(app) as base, serving(first_day) as empty:
        yield Served(base, empty, jobs, database, cookie)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


def opened(chromium: Any, width: int, scheme: str) -> tuple[Any, list[str]]:
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if "127.0.0.1" in request.url or request.url.startswith(("data:", "blob:"))
            else problems.append(request.url)
        ),
    )
    return page, problems


def visit(page: Any, address: str) -> int:
    """Opens a page and waits until all its charts are drawn; how many there are."""
    page.goto(address)
    charts: int = page.locator("figure.chart").count()
    until(page, f"document.querySelectorAll('.plot[data-drawn]').length === {charts}")
    return charts


def until(page: Any, condition: str) -> None:
    """Waits for a condition; playwright's own wait evaluates a string in the page, which the pages' policy forbids."""
    give_up = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < give_up, condition
        page.wait_for_timeout(20)


UNFOLD = """() => {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
    for (const row of document.querySelectorAll("tbody tr:nth-child(n+5), .log li:nth-child(n+5)")) row.remove();
}"""
"""Before axe-core looks: everything open, and of long tables and logs the first rows, for the others are like them."""


def objections(page: Any, *rules: str) -> list[str]:
    """What axe-core finds on the page as it stands; of those rules alone where some are named."""
    page.evaluate(UNFOLD)
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    options = {"resultTypes": ["violations"], "preload": False} | ({"runOnly": list(rules)} if rules else {})
    found = page.evaluate("async (options) => (await axe.run(options)).violations", options)
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


ALIKE = (
    *(
        "push-1a2b",
        "push-2b3c",
        "push-3c4d",
        "push-4d5e",
        "push-5e6f",
        "push-d6e7",
        "push-e7f8",
        "push-f809",
        "cancelled",
    ),
    *("h200-gproj-step.json.gz", "h200-step-d128.json.gz", "h200-step-d64.json.gz", "h200-surface.json.gz"),
)
"""Jobs and reports whose pages are built as those of others."""


@pytest.mark.parametrize(
    ("width", "scheme", "others", "rules"),
    [
        (1280, "light", (768, 2560), ()),
        (360, "dark", (), ("color-contrast", "scrollable-region-focusable")),
    ],
)
def test_every_page_renders(
    served: Served, chromium: Any, width: int, scheme: str, others: tuple[int, ...], rules: tuple[str, ...]
) -> None:
    page, problems = opened(chromium, width, scheme)
    jobs = {name: number for name, number in served.jobs.items() if name not in ALIKE}
    for address in [*addresses(jobs), "/regressions/1"]:
        charts = visit(page, served.base + address)
        assert page.locator(".plot svg.main-svg").count() >= charts, address
        for each in (*others, width):
            page.set_viewport_size({"width": each, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= each, (address, each)
        assert objections(page, *rules) == [], address
        assert problems == [], (address, problems)
    page.close()


def test_nobody_meets_a_barrier(served: Served, chromium: Any) -> None:
    """Signed in, on the first day, and where something went wrong, in light and dark."""
    page, _ = opened(chromium, 1280, "light")
    jobs = served.jobs
    mine = [
        "/",
        "/audit",
        "/audit?actor=nobody",
        "/tokens",
        "/bisections/2",
        "/regressions/1",
        *(f"/jobs/{jobs[name]}" for name in ("broken", "running", "waiting")),
    ]
    wrong = ["/jobs/999999", "/jobs/x", "/projects/no/body", "/projects/gproj-ci/gproj/compare?base=zz&head=6f70"]
    first_day = ["/", "/projects", "/jobs", "/regressions", "/training", "/inputs", "/reports", "/workers"]
    for address in [
        *(served.empty + path for path in first_day),
        *(served.base + path for path in [*wrong, "/sign-in", "/embed/gproj-ci/gproj/history"]),
        *(served.base + path for path in mine),
    ]:
        if address == served.base + mine[0]:
            page.context.add_cookies([{"name": sessions.COOKIE, "value": served.cookie, "url": served.base}])
        visit(page, address)
        assert objections(page) == [], address
        page.emulate_media(color_scheme="dark")
        assert objections(page, "color-contrast") == [], address
        page.emulate_media(color_scheme="light")
    assert "Sign out" in page.locator("header.top").text_content()
    page.close()


def test_axe_objects_where_there_is_reason(served: Served, chromium: Any) -> None:
    page, _ = opened(chromium, 1280, "light")
    visit(page, f"{served.empty}/workers")
    page.evaluate("document.querySelector('main').innerHTML = '<h1></h1><img src=\"/static/mark.svg\">'")
    assert {each.partition(":")[0] for each in objections(page)} == {"empty-heading", "image-alt"}
    page.close()


def test_the_keyboard_reaches_everything_and_shows_where_it_is(served: Served, chromium: Any) -> None:
    page, _ = opened(chromium, 1280, "light")
    visit(page, f"{served.base}/projects/gproj-ci/gproj/history")
    focused = """() => {
        const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
        const header = document.querySelector('.top').getBoundingClientRect().bottom;
        const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
        const clear = one.closest('.top, .skip') !== null || box.top >= header;
        return [one.textContent.trim() || one.name, outlined, box.width > 0 && box.left >= 0 && clear];
    }"""
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == ["Skip to the content", True, True]
    page.keyboard.press("Enter")
    until(page, "document.activeElement.id === 'main'")  # a browser follows a link a moment later
    reached: list[str] = []
    while "Show as a table" not in reached:
        page.keyboard.press("Tab")
        name, outlined, in_sight = page.evaluate(focused)
        assert (outlined, in_sight) == (True, True), name
        reached.append(name)
        assert len(reached) < 40
    assert {"History", "Compare", "backend", "zoom"} <= set(reached)
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").endswith("newest commit first")
    page.keyboard.press("Tab")
    assert re.fullmatch(r"/jobs/\d+", page.evaluate("document.activeElement.getAttribute('href')"))
    page.close()


def test_times_are_the_readers_and_hovering_shows_utc(served: Served, chromium: Any) -> None:
    context = chromium.new_context(timezone_id="Asia/Kathmandu", locale="en-GB")
    page = context.new_page()
    visit(page, f"{served.base}/reports/{served.jobs['h200-peers.json.gz']}")
    assert re.fullmatch(
        r"\d+ hours ago|\d+ days ago|just now|\d+ (s|min) ago", page.locator("time").last.text_content()
    )
    page.clock.set_fixed_time(datetime.now(UTC) + timedelta(days=3))
    page.reload()
    one = page.locator("time").first
    moment = datetime.fromisoformat(one.get_attribute("datetime"))
    here = moment.astimezone(ZoneInfo("Asia/Kathmandu"))
    assert one.text_content() == f"{here:%-d %b %Y, %H:%M}"
    assert one.get_attribute("title") == f"{here:%-d %b %Y, %H:%M:%S} GMT+5:45\n{moment:%Y-%m-%d %H:%M:%S} UTC"
    visit(page, f"{served.base}/projects/gproj-ci/gproj/history")
    said = page.evaluate("document.querySelector('.plot').data[0].hovertext[0]")
    assert re.search(r", \d\d:\d\d \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)", said), said
    context.close()


def test_paper_has_charts_in_light_colours_and_no_navigation(served: Served, chromium: Any) -> None:
    page, _ = opened(chromium, 1280, "dark")
    visit(page, f"{served.base}/")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    ink = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    until(page, f"{ink} === 'rgb(91, 100, 114)'")
    assert page.locator(".plot svg.main-svg").first.bounding_box()["width"] <= 700
    assert not page.locator("header.top, footer, .filters").filter(visible=True).count()
    assert page.locator("figure.chart").filter(visible=True).count()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 39)"
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    until(page, f"{ink} === 'rgb(154, 163, 178)'")
    page.close()


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Address of another site, whose only page no policy keeps from having frames."""
    with serving(FastAPI(openapi_url=None, docs_url=None, redoc_url=None)) as address:
        yield address


def test_another_site_may_frame_a_chart_and_no_page(served: Served, chromium: Any, elsewhere: str) -> None:
    page, problems = opened(chromium, 1280, "light")
    page.goto(elsewhere)
    add = """address => {
        const frame = document.createElement("iframe");
        frame.src = address;
        document.body.replaceChildren(frame);
    }"""
    page.evaluate(add, f"{served.base}/embed/gproj-ci/gproj/pareto")
    page.frame_locator("iframe").locator(".plot[data-drawn]").wait_for()
    assert [problem for problem in problems if "404" not in problem] == []  # its icon
    with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        page.evaluate(add, f"{served.base}/workers")
    page.close()


def test_a_chart_follows_the_colour_scheme(served: Served, chromium: Any) -> None:
    page, _ = opened(chromium, 1360, "light")
    page.goto(f"{served.base}/")
    page.wait_for_selector(".plot[data-drawn]")
    colour = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    until(page, f"{colour} !== '{light}'")
    page.close()


def test_a_chart_keeps_its_height_when_the_window_changes(served: Served, chromium: Any) -> None:
    page, _ = opened(chromium, 1280, "light")
    visit(page, f"{served.base}/training/story")
    box = "document.querySelector('.plot svg.main-svg').getBoundingClientRect()"
    width, height = page.evaluate(f"[{box}.width, {box}.height]")
    page.set_viewport_size({"width": 600, "height": 900})
    until(page, f"{box}.width < {width} - 400")
    assert page.evaluate(f"{box}.height") == height > 800
    page.close()


def test_hovering_a_mark_breaks_no_rule_and_a_click_opens_its_job(served: Served, chromium: Any) -> None:
    page, problems = opened(chromium, 1360, "light")
    page.goto(f"{served.base}/projects/gproj-ci/gproj/history?backend=gproj")
    page.wait_for_selector(".plot[data-drawn]")
    page.locator(".plot .points path").first.hover(force=True)
    page.wait_for_selector(".hoverlayer .hovertext")
    assert "Ada Lovelace" in page.locator(".hoverlayer").text_content()
    page.locator(".plot .points path").first.click(force=True)
    page.wait_for_url("**/jobs/*")
    assert problems == []
    page.close()


def test_a_live_page_becomes_the_whole_page_when_the_job_ends(served: Served, chromium: Any) -> None:
    base, jobs, database = served.base, served.jobs, served.database
    page, problems = opened(chromium, 1360, "light")
    page.goto(f"{base}/jobs/{jobs['running']}")
    assert "Measuring on cpu-worker-1" in page.locator("#live").text_content()
    with database.session(writes=True) as session:
        job = session.get_one(Job, jobs["running"])
        job.state, job.detail = "cancelled", "superseded while it ran"
    page.wait_for_selector("text=superseded while it ran", timeout=10_000)
    page.locator("[hx-get]").wait_for(state="detached", timeout=10_000)
    assert problems == []
    page.close()


def test_search_narrows_the_log(served: Served, chromium: Any) -> None:
    base, jobs = served.base, served.jobs
    page, _ = opened(chromium, 1360, "light")
    page.goto(f"{base}/jobs/{jobs['broken']}")
    page.fill("#log-search", "building")
    assert page.locator("#log li:not([hidden])").count() == 1
    assert page.locator("#log-count").text_content() == "1 shown"
    page.goto(f"{base}/jobs/{jobs['broken']}#log-2")
    assert page.locator("#log-2:target").count() == 1
    page.close()


def test_a_stranger_finds_who_broke_dq_within_three_clicks(served: Served, chromium: Any) -> None:
    """From the overview: which commit, by how much, on which input and head, and how to reproduce it."""
    page, problems = opened(chromium, 1280, "light")
    visit(page, f"{served.base}/")
    since = page.locator(".since").first
    assert "dQ error, median of gproj on late-keybias 0.195% → 33.2% (170×)" in since.inner_text()
    since.get_by_role("link", name="Sum the rows of dS in BF16").click()  # the first
    page.wait_for_url(f"**/jobs/{served.jobs['push-e7f8']}")
    assert page.locator("h1").inner_text() == "Sum the rows of dS in BF16"
    facts = page.locator(".facts").inner_text()
    assert "e7f8e7f8" in facts
    assert "Grace Hopper" in facts
    verdict = page.locator("#live").inner_text()
    assert "gproj: dQ error on late-keybias is 33.2% (median), limit 0.35%; worst head L1.b0.h0 4,480%" in verdict
    assert "gproj@e7f8e7f8" in page.locator("#repro-command").inner_text()
    page.get_by_role("link", name="compare with the base").click()  # the second
    page.wait_for_selector("#differences[data-drawn]")
    heads = page.evaluate("document.getElementById('differences').data[0]")
    assert (heads["y"][0], heads["x"][0], heads["text"][0][0]) == ("L1", "h0", "22,400×")
    assert problems == []
    page.close()


def test_the_part_of_a_history_that_is_looked_at_stands_in_the_address(served: Served, chromium: Any) -> None:
    page, problems = opened(chromium, 1280, "light")
    history = f"{served.base}/projects/gproj-ci/gproj/history"
    shown = "document.querySelector('.plot').layout.xaxis.range.map((end) => Number(end.toFixed(1)))"
    visit(page, f"{history}?zoom=2b3c2b3c..4d5e4d5e")
    until(page, f"{shown}[0] === 0.6 && {shown}[1] === 3.4")
    page.emulate_media(color_scheme="dark")  # which draws anew: all first, then the part
    ink = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    until(page, f"{ink} === 'rgb(154, 163, 178)' && {shown}[0] === 0.6 && {shown}[1] === 3.4")
    box = page.locator(".plot .nsewdrag").first.bounding_box()
    left, top = box["x"], box["y"] + box["height"] / 2
    page.mouse.dblclick(left + 0.36 * box["width"], top + 40)
    page.wait_for_url(history)
    assert page.input_value("input[name=zoom]") == ""
    page.mouse.move(left + 0.3 * box["width"], top + 40)
    page.mouse.down()
    page.mouse.move(left + 0.6 * box["width"], top + 44, steps=4)
    page.mouse.up()
    page.wait_for_url("**/history?zoom=*")
    first, _, last = page.input_value("input[name=zoom]").partition("..")
    places = page.evaluate("document.querySelector('.plot').layout.xaxis.ticktext")
    assert places.index(first) < places.index(last)
    page.select_option("select[name=metric]", "dk_error")  # another choice keeps the range
    page.wait_for_url("**metric=dk_error**")
    assert page.input_value("input[name=zoom]") == f"{first}..{last}"
    visit(page, f"{history}?zoom=nonsense")
    assert page.evaluate(shown)[0] == -0.4
    assert problems == []
    page.close()


def test_a_part_of_more_sessions_than_there_is_room_for_is_asked_of_the_database(served: Served, chromium: Any) -> None:
    page, problems = opened(chromium, 1280, "light")
    history = f"{served.base}/projects/gproj-ci/gproj/history?span=all"
    visit(page, history)
    assert "Each point is the median of all sessions" in page.locator("figure.chart figcaption").inner_text()
    box = page.locator(".plot .nsewdrag").bounding_box()
    across, height = [box["x"] + share * box["width"] for share in (0.3, 0.7)], box["y"] + 0.5 * box["height"]
    page.mouse.move(across[0], height)
    page.mouse.down()
    page.mouse.move(across[1], height + 3, steps=4)
    page.mouse.up()
    page.get_by_text(" commits, oldest on the left").wait_for()
    page.wait_for_selector(".plot[data-drawn]")
    first, _, last = page.input_value("input[name=zoom]").partition("..")
    assert f"zoom={first}..{last}" in page.url
    drawn = page.evaluate("document.querySelector('.plot').layout.xaxis.ticktext")
    assert drawn[-1] == last
    assert drawn.index(first) in (0, 1)  # the first session's base comes before its head
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.wait_for_timeout(500)
    assert requests == [], "it asks once"
    page.mouse.dblclick(across[0], box["y"] + 5)
    page.get_by_text("Each point is the median of all sessions").wait_for()
    assert page.input_value("input[name=zoom]") == ""
    assert problems == []
    page.close()


MARKS = """() => [...document.querySelectorAll('.plot .points path')].map((mark) => mark.getBoundingClientRect())
    .map((box) => [box.x + box.width / 2, box.y + box.height / 2])"""


def test_a_double_click_brings_back_the_whole_chart_also_on_a_mark(served: Served, chromium: Any) -> None:
    page, problems = opened(chromium, 1280, "light")
    page.clock.install()
    history = f"{served.base}/projects/gproj-ci/gproj/history"
    part = f"{history}?zoom=2b3c2b3c..4d5e4d5e"
    drawn = "document.querySelector('.plot').layout.xaxis.range[0].toFixed(1) === '0.6'"
    visit(page, history)
    whole = page.evaluate(MARKS)
    visit(page, part)
    until(page, drawn)
    box = page.locator(".plot .nsewdrag").bounding_box()
    near = [(x, y) for x, y in page.evaluate(MARKS) if box["x"] < x < box["x"] + box["width"]]
    free = next(place for place in whole if all(math.dist(place, mark) > 60 for mark in near))
    for place in (near[0], free):  # a mark as it stands, and one as it will stand between the two clicks
        visit(page, part)
        until(page, drawn)
        page.mouse.dblclick(*place, delay=60)
        page.wait_for_url(history)
        page.clock.run_for(2000)
        assert page.evaluate("location.href") == history, place
    visit(page, part)
    until(page, drawn)
    page.mouse.click(*near[0])
    page.wait_for_url("**/jobs/*")
    assert problems == []
    page.close()


def test_what_destroys_asks_first(served: Served, chromium: Any) -> None:
    page, problems = opened(chromium, 1280, "light")
    page.context.add_cookies([{"name": sessions.COOKIE, "value": served.cookie, "url": served.base}])
    visit(page, f"{served.base}/bisections/2")
    asks = page.get_by_role("dialog", name="Cancel this search")
    assert not asks.is_visible()
    page.get_by_role("button", name="Cancel this search…").click()
    assert asks.is_visible()
    assert page.evaluate("document.activeElement.textContent") == "Let it go on"
    assert objections(page) == []
    page.keyboard.press("Escape")
    assert not asks.is_visible()
    page.get_by_role("button", name="Cancel this search…").click()
    asks.get_by_role("button", name="Cancel this search").click()
    page.wait_for_selector(".verdict-bar.is-cancelled")
    assert problems == []
    page.close()
