"""The pages of regressions and the change points of the history, over a measured default branch."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gprojci_service.app import create_app
from gprojci_service.regressions import service

sys.path.insert(0, str(Path(__file__).parent))
from regression_history import History
from test_pages_seed import NASTY, settings_for


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An instance with one open regression that shows in two series, with a comment."""
    app = create_app(settings_for(tmp_path_factory.mktemp("regressions")))
    app.state.database.migrate()
    history = History(app.state.database)
    history.measure(30, dq_error=0.002, forward_ratio_anchor=1.2)
    history.measure(12, dq_error=0.0026, forward_ratio_anchor=1.26)
    history.look()
    number = history.only().id
    with app.state.database.session(writes=True) as session:
        service.comment(session, number, NASTY, author="Ada")
        session.info.clear()  # no broker is here
    with TestClient(app) as made:
        yield made


def drawn(page: str) -> list[dict[str, object]]:
    """The traces of a page's chart."""
    found = re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return list(json.loads(found.group(1))["data"])


def test_the_list_has_one_row_for_both_series(client: TestClient) -> None:
    page = client.get("/regressions").text
    assert page.count('<a href="/regressions/1">') == 1
    assert "2 series: dQ error" in page
    assert re.search(r">\+(29|30)\.\d%<", page)


@pytest.mark.parametrize(
    ("query", "shown"),
    [("state=all", True), ("state=fixed", False), ("state=nonsense", True), ("sort=changed", True), ("page=2", False)],
)
def test_the_list_is_filtered_sorted_and_paged(client: TestClient, query: str, shown: bool) -> None:
    answered = client.get(f"/regressions?{query}")
    assert answered.status_code == 200
    assert ('href="/regressions/1"' in answered.text) == shown


def test_a_regression_shows_its_curve_its_commits_and_how_to_go_on(client: TestClient) -> None:
    page = client.get("/regressions/1").text
    good, bad = f"{30:040x}", f"{31:040x}"
    assert f"/projects/o/r/compare?base={good}&amp;head={bad}" in page
    assert f"gprojci submit o/r {bad} --base {good}" in page
    assert f"gprojci bisect --project o/r --hardware cpu --good {good[:12]} --bad {bad[:12]} --metric dq_error" in page
    (mark,) = [trace for trace in drawn(page) if trace["name"] == "worse from here on"]
    assert mark["x"] == [30]
    assert NASTY not in page
    other = client.get("/regressions/1?series=2").text
    assert "forward time relative to the anchor" in other
    assert "--metric forward_seconds" in other
    assert client.get("/regressions/99").status_code == 404


def test_the_history_marks_where_the_level_changed(client: TestClient) -> None:
    traces = drawn(client.get("/projects/o/r/history?metric=dq_error").text)
    (mark,) = [trace for trace in traces if trace["name"] == "worse from here on"]
    assert (mark["x"], len(mark["text"])) == ([30], 1)
