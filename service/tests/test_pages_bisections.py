"""The pages of searches for a first bad commit: the list, the evidence, and how one is cancelled."""

from __future__ import annotations

import html
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gprojci_service.access import service as access
from gprojci_service.access import sessions
from gprojci_service.models import Bisection, Job

sys.path.insert(0, str(Path(__file__).parent))
from test_pages_seed import seeding
from test_pages_tokens import mark

FOUND, RUNNING = 1, 2
BAD = "6f70" * 10


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An instance with two searches; whoever asks is signed in."""
    with seeding(tmp_path_factory.mktemp("bisections")) as (app, seed):
        seed.commit("6f70", "Skip the projection\n\nSaves 4%.", 6.0, "Mallory")
        waiting = seed.job(BAD, "1a2b" * 10, 6.1)
        seed.searches(defaultdict(lambda: waiting.id))
        cookie = sessions.start(seed.settings, access.create_token(seed.session, "Ada", "write")[0])[0]
    with TestClient(app, cookies={sessions.COOKIE: cookie}) as made:
        yield made


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", {1, 2}),
        ("state=found", {1}),
        ("state=running&project=gproj-ci/gproj", {2}),
        ("state=failed", set()),
        ("project=no/body", {1, 2}),
        ("page=2", set()),
    ],
)
def test_the_list_is_filtered_and_paged(client: TestClient, query: str, shown: set[int]) -> None:
    page = client.get(f"/bisections?{query}").text
    assert {int(number) for number in re.findall(r'<a href="/bisections/(\d+)">', page)} == shown
    assert ("No bisection" in page) == (not shown)


def test_the_list_says_what_is_known(client: TestClient) -> None:
    page = client.get("/bisections").text
    assert "6f706f706f is the first commit whose dQ error, median is worse" in page
    assert "3 commits remain after 2 measurements" in page


def test_a_search_names_the_commit_by_how_much_and_how_to_reproduce_it(client: TestClient) -> None:
    page = client.get(f"/bisections/{FOUND}").text
    assert re.search(r'First bad commit: <span class="sha">6f706f70</span> Skip the projection<', page)
    assert "By Mallory. dQ error, median is 170× the good commit's." in html.unescape(page)
    assert f"compare?base={'1a2b' * 10}&amp;head={BAD}" in page
    assert f"gprojci submit gproj-ci/gproj {BAD} --base {'5e6f' * 10}" in page
    again = "gprojci bisect --project gproj-ci/gproj --hardware cpu --metric dq_error --good 1a2b1a2b1a2b"
    assert again in page
    evidence = page[page.index('aria-label="Evidence"') :]
    words = re.findall(r'<td><span class="badge[^>]*>.*?</svg>(\w+)</span></td>', evidence, re.DOTALL)
    assert words == ["bad", "good", "skipped", "good"]
    assert "<script>alert" not in page


def test_a_running_search_has_the_browser_load_what_is_new(client: TestClient) -> None:
    page = client.get(f"/bisections/{RUNNING}").text
    asked = re.search(r'hx-get="([^"]+)"', page)
    assert asked
    assert client.get(asked.group(1)).status_code == 204
    assert client.get(f"/bisections/{RUNNING}/live?known=1").headers["HX-Refresh"] == "true"
    assert client.get(f"/bisections/{FOUND}/live?known=4").headers["HX-Refresh"] == "true"
    assert client.get("/bisections/99/live").status_code == 404


def test_an_unknown_search_is_a_page(client: TestClient) -> None:
    answer = client.get("/bisections/99")
    assert answer.status_code == 404
    assert "no bisection 99" in answer.text


def test_it_is_cancelled_after_a_question(client: TestClient) -> None:
    page = client.get(f"/bisections/{RUNNING}").text
    asks: Any = re.search(r'popover role="dialog".*?</div>', page, re.DOTALL)
    assert f'action="/bisections/{RUNNING}/cancel"' in asks.group()
    assert client.post(f"/bisections/{RUNNING}/cancel", data={"csrf": "x"}).status_code == 403
    form = {"csrf": mark(asks.group())}
    answer = client.post(f"/bisections/{RUNNING}/cancel", data=form, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/bisections/{RUNNING}")
    page = client.get(f"/bisections/{RUNNING}").text
    assert "popover" not in page
    assert "hx-get" not in page
    with client.app.state.database.session(writes=False) as session:  # type: ignore[attr-defined]
        assert session.get_one(Bisection, RUNNING).state == "cancelled"
        assert session.query(Job).one().state == "queued"  # it was made for something else
