"""Measures every page on a long history: server time, bytes, processor time, and when Chromium has drawn the charts.

    python tests/load/bench_pages.py                      # both histories: ten thousand commits, and LNT's shape
    python tests/load/bench_pages.py --only lnt --data D  # one of them, kept in D for the next run

It starts a PostgreSQL of its own with its defaults, makes the histories (generate.py), and runs the service as it is
deployed: two workers. Each page is asked for with varied parameters, one request at a time; the server
time is from the request to the last byte, over the loopback; CPU is what service and PostgreSQL spent on a request.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx
import psutil
import psycopg

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))
from find_chromium import ARGUMENTS, find_chromium
from generate import PROJECT, generate
from pages import Page, pages
from servers import cpu_seconds, machine, postgres, postmaster, settings_of, url_of, web
from shape import Shape

from gprojci_service.context import Context

HISTORIES = {
    "issue": Shape(commits=10_000, backends=12, cases=40, metrics=6),
    # LNT's: 480 tests, a value of each at every commit.
    "lnt": Shape(commits=1_000, backends=12, cases=40, metrics=1, slices=1),
}
LNT_SECONDS = {"job": 0.246, "compare": 0.309, "history": 0.444, "regressions": 5.8}
"""LNT 0.4.20 on PostgreSQL, 1,000 commits × 480 tests, 2 workers: run, compare, history of 12 tests, list."""
LNT_BYTES = {"job": 0.7e6, "history": 1.3e6}
LNT_RUN_PAGES_A_SECOND = 8.7


@dataclass
class Result:
    """What was measured of one page."""

    page: Page
    seconds: list[float]
    sent: int
    plain: int
    cpu: float
    drawn: list[float]


def database(server: str, name: str, shape: Shape) -> str:
    """The URL of the database of that name; made, migrated and filled where it is not there yet."""
    url = url_of(server, name)
    with psycopg.connect(server, autocommit=True) as connection:
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
    context = Context.open(settings_of(url))
    context.database.migrate()
    context.database.close()
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        filled = connection.execute("SELECT EXISTS (SELECT FROM project)").fetchone() == (True,)
    if not filled:
        began = time.monotonic()
        generate(url, shape)
        print(f"{name}: {shape.samples:,} samples made in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return url


def measured(address: str, page: Page, requests: int, servers: tuple[psutil.Process, ...], seed: int) -> Result:
    """Asks for a page with varied parameters, one request at a time."""
    choose = random.Random(seed)
    paths = [page.path(choose) for _ in range(requests)]
    seconds, sent, plain = [], [], []
    with httpx.Client(base_url=address, headers={"Accept-Encoding": "gzip"}, timeout=60) as client:
        for path in paths[:4]:
            client.get(path).raise_for_status()
        cpu = cpu_seconds(servers)
        for path in paths:
            began = time.perf_counter()
            answer = client.get(path)
            seconds.append(time.perf_counter() - began)
            answer.raise_for_status()
            sent.append(answer.num_bytes_downloaded)
            plain.append(len(answer.content))
        cpu = (cpu_seconds(servers) - cpu) / requests
    return Result(page, sorted(seconds), max(sent), max(plain), cpu, [])


def run_pages_a_second(address: str, page: Page, seconds: float = 8.0) -> float:
    """How many job pages two clients get in a second."""
    counts = [0, 0]

    def ask(number: int) -> None:
        choose = random.Random(number)
        give_up = time.monotonic() + seconds
        with httpx.Client(base_url=address, headers={"Accept-Encoding": "gzip"}, timeout=60) as client:
            while time.monotonic() < give_up:
                client.get(page.path(choose)).raise_for_status()
                counts[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def draw(address: str, results: list[Result], times: int = 5) -> None:
    """Adds to each page with charts how long Chromium takes from asking for it to having drawn them all."""
    from playwright.sync_api import sync_playwright

    drawn = "() => { const all = document.querySelectorAll('figure.chart .plot'); "
    drawn += "return all.length > 0 && [...all].every((plot) => plot.dataset.drawn); }"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        tab = browser.new_page(viewport={"width": 1360, "height": 900})
        for result in results:
            if not result.page.draws:
                continue
            choose = random.Random(1)
            for _ in range(times + 1):
                began = time.perf_counter()
                tab.goto(f"{address}{result.page.path(choose)}", wait_until="commit")
                tab.wait_for_function(drawn, timeout=60_000)
                result.drawn.append(time.perf_counter() - began)
            result.drawn.pop(0)  # with the browser's cache filled, as for whoever has been here
        browser.close()


def table(name: str, results: list[Result]) -> str:
    """The results in Markdown."""
    lines = ["| page | median | p95 | CPU | sent | plain | drawn |" + (" LNT |" if name == "lnt" else "")]
    lines += ["|---|--:|--:|--:|--:|--:|--:|" + ("--:|" if name == "lnt" else "")]
    for result in results:
        middle, late = median(result.seconds), result.seconds[round(0.95 * (len(result.seconds) - 1))]
        cells = [result.page.name, f"{middle * 1e3:.0f} ms", f"{late * 1e3:.0f} ms", f"{result.cpu * 1e3:.0f} ms"]
        cells += [f"{result.sent / 1e3:.0f} KB", f"{result.plain / 1e3:.0f} KB"]
        cells += [f"{median(result.drawn):.2f} s" if result.drawn else ""]
        if name == "lnt":
            theirs, weight = LNT_SECONDS.get(result.page.name), LNT_BYTES.get(result.page.name)
            words = "" if theirs is None else f"{theirs * 1e3:.0f} ms: {theirs / middle:.1f}×"
            cells += [words + ("" if weight is None else f", {weight / 1e6:.1f} MB: {weight / result.plain:.1f}×")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def bench(name: str, server: str, options: argparse.Namespace) -> None:
    """One history: makes it, runs the service on it and prints the table."""
    shape = HISTORIES[name]
    url = database(server, name, shape)
    with web(settings_of(url)) as (address, process):
        servers = (process, postmaster(server))
        known = pages(shape, PROJECT)
        results = [measured(address, page, options.requests, servers, seed) for seed, page in enumerate(known)]
        rate = run_pages_a_second(address, next(page for page in known if page.name == "job"))
        if not options.no_browser:
            draw(address, results)
    print(f"\n{name}: {shape.commits:,} commits × {len(shape.keys):,} series = {shape.samples:,} samples\n")
    print(table(name, results))
    theirs = f" (LNT: {LNT_RUN_PAGES_A_SECOND})" if name == "lnt" else ""
    print(f"\n{rate:.1f} job pages a second{theirs}; {options.requests} requests a page; {machine()}", flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(HISTORIES), help="one of the histories")
    parser.add_argument("--data", type=Path, help="where to keep PostgreSQL's files for the next run")
    parser.add_argument("--requests", type=int, default=30, help="requests for each page")
    parser.add_argument("--no-browser", action="store_true", help="leave Chromium out")
    options = parser.parse_args()
    directory = options.data or Path(tempfile.mkdtemp(prefix="gprojci-bench-"))
    try:
        with postgres(directory) as server:
            for name in [options.only] if options.only else list(HISTORIES):
                bench(name, server, options)
    finally:
        if options.data is None:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
