"""Lists of jobs and of projects: filters, searches, orders, pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gprojci_service.jobs.repository import next_queued
from gprojci_service.models import ImportedReport, Project, Worker, now
from gprojci_service.pages import imported, job_list, worker_list

sys.path.insert(0, str(Path(__file__).parent))
from page_reading import turned
from test_pages_report import report_of
from test_pages_seed import seeding


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An instance with a project that fails, one that passes, one without a job, and one that is archived."""
    with seeding(tmp_path_factory.mktemp("several")) as (app, seed):
        head = seed.commit("1a2b", "Break dQ", 1)
        seed.measured(seed.job(head, None, 1), report_of(head, None, broken=True, base_broken=False))
        seed.project = seed.add(Project(name="z/green", clone_url="https://github.com/z/green.git"))
        head = seed.commit("3c4d", "Mend dQ", 2)
        seed.measured(seed.job(head, None, 2), report_of(head, None, broken=False, base_broken=False))
        seed.add(Project(name="a/new", clone_url="https://github.com/a/new.git"))
        seed.add(Project(name="old/one", clone_url="https://github.com/old/one.git", archived_at=now()))
    with TestClient(app) as client:
        yield client


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
        text = "".join(turned(client, f"/jobs?q=main&sort={sort}", "(?:Older|Later) jobs", keeps="q=main"))
        seen = [int(number) for number in re.findall(r'title-cell"><a href="/jobs/(\d+)">', text)]
        assert seen == sorted(set(seen), reverse=order < 0)
        assert len(seen) == sum(not name.endswith(".json.gz") for name in jobs) - 3  # without the pull requests'


def test_the_queue_stands_in_the_order_of_claiming(tmp_path: Path) -> None:
    with seeding(tmp_path) as (app, seed):
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
    with TestClient(app) as client:
        page = client.get("/jobs?state=queued").text
    claimed = []
    with app.state.database.session(writes=True) as session:
        while (turn := next_queued(session, "cpu")) is not None:
            job, _ = turn
            job.state, job.started_at = "running", datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=len(claimed))
            session.flush()
            claimed.append(job.id)
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
    assert re.findall(r'<th scope="row" class="title-cell"><a href="/projects/([^"]+)">', page) == names
    assert ("No project" in page) == (not names)


def test_a_search_for_the_name_of_an_order_stays_in_the_addresses(several: TestClient) -> None:
    page = several.get("/projects?q=name&sort=newest").text
    assert 'href="/projects?state=fail&amp;q=name&amp;sort=newest"' in page


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An instance with a worker of each state, one of them drained, on two hardware classes."""
    with seeding(tmp_path_factory.mktemp("hosts")) as (app, seed):
        seed.worker.last_seen_at = now() - timedelta(days=1)
        for name, device, seconds in (("rack-b", "H200", 1), ("rack-a", "H200 NVL", 2), ("cpu-worker-2", "a CPU", 3)):
            hardware = "cpu" if "cpu" in name else "h200"
            about = {"boot_id": "b", "environment": {}, "device": "cpu" if hardware == "cpu" else "cuda"}
            worker = seed.add(Worker(name=name, hardware=hardware, device_name=device, **about))
            worker.last_seen_at = now() - timedelta(seconds=seconds)
            if name == "rack-b":
                worker.draining_at = now()
                seed.worker = worker
                seed.attempt(seed.job(seed.commit("1a2b", "Mend dQ", 1), None, 1), "running", "", [])
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["cpu-worker-2", "rack-a", "rack-b", "cpu-worker-1"]),
        ("sort=name", ["cpu-worker-1", "cpu-worker-2", "rack-a", "rack-b"]),
        ("sort=seen", ["rack-b", "rack-a", "cpu-worker-2", "cpu-worker-1"]),
        ("hardware=h200&sort=seen", ["rack-b", "rack-a"]),
        ("state=busy", ["rack-b"]),
        ("state=idle", ["cpu-worker-2", "rack-a"]),
        ("state=away", ["cpu-worker-1"]),
        ("state=drained", ["rack-b"]),
        ("q=NVL", ["rack-a"]),
        ("q=worker&state=idle&hardware=cpu", ["cpu-worker-2"]),
        ("q=nobody", []),
        ("page=2", []),
        ("hardware=abacus&state=asleep&sort=luck&q=rack-b", ["rack-b"]),
    ],
)
def test_workers_are_filtered_searched_and_sorted(hosts: TestClient, query: str, names: list[str]) -> None:
    page = hosts.get(f"/workers?{query}").text
    assert re.findall(r'<th scope="row">([^<]+)</th>', page) == names
    assert ("No worker fits" in page) == (not names)
    assert "No worker has said hello" not in page


def test_a_long_list_of_workers_is_paged_with_what_is_chosen(
    hosts: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_list, "PAGE", 1)
    pages = turned(hosts, "/workers?hardware=h200&sort=seen", "More", keeps="hardware=h200&sort=seen")
    page, seen = pages[-1], re.findall(r'<th scope="row">([^<]+)</th>', "".join(pages))
    assert seen == ["rack-b", "rack-a"]
    assert 'href="/workers?hardware=h200&amp;sort=seen">Before</a>' in page
    drained = '<a class="button" href="/workers?state=drained&amp;hardware=h200&amp;sort=seen">drained'
    assert f'{drained} <span class="muted">1</span></a>' in page


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An instance with imported reports of two hardware classes."""
    with seeding(tmp_path_factory.mktemp("shelf")) as (app, seed):
        for title, hardware in (("Peers at d128", "h200"), ("peers at d64", "h200"), ("All of 100%", "b200")):
            seed.add(ImportedReport(content_hash=title, title=title, schema_version=1, body={}, hardware=hardware))
    with TestClient(app) as client:
        yield client


REPORT = r'<th scope="row" class="title-cell"><a href="/reports/\d+">([^<]+)</a>'


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        ("", ["All of 100%", "peers at d64", "Peers at d128"]),
        ("sort=title", ["All of 100%", "Peers at d128", "peers at d64"]),
        ("hardware=h200", ["peers at d64", "Peers at d128"]),
        ("q=D64+PEERS", ["peers at d64"]),
        ("q=0%25", ["All of 100%"]),
        ("q=nothing", []),
        ("hardware=abacus&sort=luck&q=d128", ["Peers at d128"]),
    ],
)
def test_reports_are_filtered_searched_and_sorted(shelf: TestClient, query: str, titles: list[str]) -> None:
    page = shelf.get(f"/reports?{query}").text
    assert re.findall(REPORT, page) == titles
    assert ("No report fits" in page) == (not titles)
    assert "No report has been imported" not in page


def test_a_long_list_of_reports_is_paged_with_what_is_chosen(
    shelf: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imported, "PAGE", 1)
    pages = turned(shelf, "/reports?q=at&sort=title", "More", keeps="q=at&sort=title")
    page, seen = pages[-1], re.findall(REPORT, "".join(pages))
    assert seen == ["Peers at d128", "peers at d64"]
    assert 'href="/reports?q=at&amp;sort=title">Before</a>' in page
