"""Every page in a real Chromium: no blocked resource, no error, charts drawn, no sideways scrolling at 360 pixels."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from gprojci_service.app import create_app
from gprojci_service.models import Job

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "browser"))
from find_chromium import ARGUMENTS, find_chromium
from test_pages_seed import Seed, addresses, settings_for

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = find_chromium()
pytestmark = pytest.mark.browser
if CHROMIUM is None and not os.environ.get("CI"):
    pytest.skip("no Chromium here; `make browser` gets one", allow_module_level=True)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, int], Any]]:
    """Address of a running server with the seeded story, job numbers by name, and its database."""
    settings = settings_for(tmp_path_factory.mktemp("browser"))
    app = create_app(settings)
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        seed = Seed(session, settings)
        jobs = seed.everything() | seed.examples()
        session.info.clear()
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}", jobs, app.state.database
    server.should_exit = True
    thread.join(timeout=10)


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


@pytest.mark.parametrize(("width", "scheme"), [(1360, "light"), (360, "dark")])
def test_every_page_renders(served: tuple[str, dict[str, int], Any], chromium: Any, width: int, scheme: str) -> None:
    base, jobs, _ = served
    page, problems = opened(chromium, width, scheme)
    for address in addresses(jobs):
        page.goto(base + address)
        charts = page.locator("figure.chart").count()
        page.wait_for_function("count => document.querySelectorAll('.plot[data-drawn]').length === count", arg=charts)
        assert page.locator(".plot svg.main-svg").count() >= charts, address
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
        assert problems == [], (address, problems)
    page.close()


def test_a_chart_follows_the_colour_scheme(served: tuple[str, dict[str, int], Any], chromium: Any) -> None:
    page, _ = opened(chromium, 1360, "light")
    page.goto(f"{served[0]}/")
    page.wait_for_selector(".plot[data-drawn]")
    colour = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"before => {colour} !== before", arg=light)
    page.close()


def test_hovering_a_mark_breaks_no_rule_and_a_click_opens_its_job(
    served: tuple[str, dict[str, int], Any], chromium: Any
) -> None:
    page, problems = opened(chromium, 1360, "light")
    page.goto(f"{served[0]}/projects/gproj-ci/gproj/history?backend=gproj")
    page.wait_for_selector(".plot[data-drawn]")
    page.locator(".plot .points path").first.hover(force=True)
    page.wait_for_selector(".hoverlayer .hovertext")
    assert "Ada Lovelace" in page.locator(".hoverlayer").text_content()
    page.locator(".plot .points path").first.click(force=True)
    page.wait_for_url("**/jobs/*")
    assert problems == []
    page.close()


def test_a_live_page_becomes_the_whole_page_when_the_job_ends(
    served: tuple[str, dict[str, int], Any], chromium: Any
) -> None:
    base, jobs, database = served
    page, problems = opened(chromium, 1360, "light")
    page.goto(f"{base}/jobs/{jobs['running']}")
    assert "Measuring on cpu-worker-1" in page.locator("#live").text_content()
    with database.session(writes=True) as session:
        job = session.get_one(Job, jobs["running"])
        job.state, job.detail = "cancelled", "superseded while it ran"
    page.wait_for_selector("text=superseded while it ran", timeout=10_000)
    page.wait_for_function("!document.querySelector('[hx-get]')", timeout=10_000)
    assert problems == []
    page.close()


def test_search_narrows_the_log(served: tuple[str, dict[str, int], Any], chromium: Any) -> None:
    base, jobs, _ = served
    page, _ = opened(chromium, 1360, "light")
    page.goto(f"{base}/jobs/{jobs['broken']}")
    page.fill("#log-search", "building")
    assert page.locator("#log li:not([hidden])").count() == 1
    assert page.locator("#log-count").text_content() == "1 shown"
    page.goto(f"{base}/jobs/{jobs['broken']}#log-2")
    assert page.locator("#log-2:target").count() == 1
    page.close()
