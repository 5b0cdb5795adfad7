"""The generator's history is one that every page shows, with few queries however long it is."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event, func, select

from gprojci_service.app import create_app
from gprojci_service.models import Commit, Sample, Series

sys.path.insert(0, str(Path(__file__).parent))
from generate import PROJECT, NotEmpty, generate
from pages import Page, pages
from servers import WORKERS, settings_of, web
from shape import Shape

SHAPE = Shape(commits=60, backends=4, cases=4, metrics=2, slices=2, full_reports=20)
QUERIES = 10
"""Most that a page may ask the database: fewer than it shows rows, so that a query for each row is seen."""
WITH_CHARTS = 18
"""The same of pages that put a chart together from several tables."""
PAGES = pages(SHAPE, PROJECT)


@pytest.fixture(scope="module")
def long_history(_new_postgres_database: Any) -> Iterator[tuple[TestClient, list[str], str]]:
    """The application on a generated history, the statements that it sends, and the database's URL."""
    url = _new_postgres_database()
    generate(url, SHAPE)
    app = create_app(settings_of(url))
    statements: list[str] = []

    @event.listens_for(app.state.database.engine, "before_cursor_execute")
    def _note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    with TestClient(app) as client:
        client.get("/readyz")  # the first connection asks PostgreSQL about itself
        yield client, statements, url


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_page_shows_it_with_few_queries(long_history: tuple[TestClient, list[str], str], page: Page) -> None:
    client, statements, _ = long_history
    path = page.path(random.Random(3))
    statements.clear()
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.text[:500])
    assert len(statements) <= (WITH_CHARTS if page.draws else QUERIES), (path, statements)
    if not path.startswith("/api"):
        assert answer.text.count('class="chart"') >= page.draws, path


def test_it_has_every_sample_and_numbers_go_on_behind_it(long_history: tuple[TestClient, list[str], str]) -> None:
    client, _, url = long_history
    with client.app.state.database.session(writes=True) as session:  # type: ignore[attr-defined]
        counts = [session.scalar(select(func.count()).select_from(table)) for table in (Sample, Series, Commit)]
        assert counts == [SHAPE.samples, len(SHAPE.keys), SHAPE.commits]
        session.add(Commit(project_id=1, sha="f" * 40, parents=[]))
        session.flush()
        session.rollback()
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        indexes = {row[0] for row in connection.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'sample'")}
    assert indexes >= {"pk_sample", "uq_sample_series_id_report_id_revision", "ix_sample_curve"}
    with pytest.raises(NotEmpty):
        generate(url, SHAPE)


def test_several_workers_serve_it(long_history: tuple[TestClient, list[str], str]) -> None:
    with web(settings_of(long_history[2])) as (address, process):
        assert PROJECT in httpx.get(address, timeout=30).text
        assert len(process.children(recursive=True)) >= WORKERS
