"""The page of tokens: who may see it, what it lists, how one is made and revoked."""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gprojci_service.access import service as access
from gprojci_service.access import sessions
from gprojci_service.app import create_app
from gprojci_service.models import Token, now
from gprojci_service.models.token import SCOPES

sys.path.insert(0, str(Path(__file__).parent))
from test_pages_seed import NASTY, settings_for

HIGHEST = SCOPES[-1]
Open = Callable[[str | None], TestClient]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Makes a browser that is signed in with the token of a name, or with none."""
    settings = settings_for(tmp_path_factory.mktemp("tokens"))
    app = create_app(settings)
    app.state.database.migrate()
    cookies: dict[str, str] = {}
    with app.state.database.session(writes=True) as session:
        for name, scope in (
            ("writer", "write"),
            ("keeper", HIGHEST),
            ("host-1", "worker"),
            (f"old {NASTY}", HIGHEST),
            ("gone", "worker"),
        ):
            token, _ = access.create_token(session, name, scope)
            cookies[name] = sessions.start(settings, token)[0]
            if name.startswith("old"):
                token.expires_at = now() - timedelta(days=1)
            if name == "gone":
                token.revoked_at = now()
    with TestClient(app):
        yield lambda name: TestClient(
            app, cookies={sessions.COOKIE: cookies[name]} if name else {}, follow_redirects=False
        )


def names(page: str) -> list[str]:
    """Names of the listed tokens."""
    found = re.findall(r'<th scope="row">(.*?)(?: <span class="tag">yours</span>)?</th>', page)
    return [html.unescape(name) for name in found]


def mark(page: str) -> str:
    """What the forms of a page prove their session by."""
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found
    return html.unescape(found.group(1))


@pytest.mark.parametrize(
    ("who", "status"), [(None, 401), ("writer", 403), ("host-1", 403), ("gone", 401), (f"old {NASTY}", 401)]
)
def test_nobody_else_sees_or_makes_tokens(opened: Open, who: str | None, status: int) -> None:
    browser = opened(who)
    assert browser.get("/tokens").status_code == status
    own = browser.get("/") if status == 403 else opened("keeper").get("/tokens")  # the mark is not what refuses it
    form = {"name": "mine", "scope": HIGHEST, "csrf": mark(own.text)}
    for path in ("/tokens", "/tokens/2/revoke"):
        assert browser.post(path, data=form).status_code == status
    assert "mine" not in opened("keeper").get("/tokens?state=all").text


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["host-1", "keeper", "writer"]),
        ("state=expired", [f"old {NASTY}"]),
        ("state=revoked", ["gone"]),
        ("state=all&sort=name", ["gone", "host-1", "keeper", f"old {NASTY}", "writer"]),
        ("scope=worker&state=all", ["gone", "host-1"]),
        ("q=KEEP", ["keeper"]),
        ("q=nobody", []),
    ],
)
def test_the_list_is_filtered_searched_and_sorted(opened: Open, query: str, shown: list[str]) -> None:
    page = opened("keeper").get(f"/tokens?{query}")
    assert names(page.text) == shown
    assert page.headers["cache-control"] == "no-store"
    assert "<script>alert" not in page.text


def test_a_search_for_the_name_of_an_order_stays_in_the_addresses(opened: Open) -> None:
    assert 'href="/tokens?state=revoked&amp;q=newest"' in opened("keeper").get("/tokens?q=newest").text


def test_a_secret_is_shown_once_and_works_until_it_is_revoked(opened: Open) -> None:
    browser = opened("keeper")
    fields: dict[str, Any] = {"csrf": mark(browser.get("/tokens").text), "name": "Grace", "scope": HIGHEST}
    made = browser.post("/tokens", data=fields | {"expires_in_days": "30"})
    assert made.status_code == 201
    found = re.search(r'id="new-secret">(gpci_[^<]+)<', made.text)
    assert found
    secret = found.group(1)
    assert secret not in browser.get("/tokens").text
    api = TestClient(browser.app, headers={"Authorization": f"Bearer {secret}"})
    (row,) = [row for row in api.get("/api/v1/tokens").json() if row["name"] == "Grace"]
    assert row["expires_at"] is not None
    asks = re.search(rf'id="revoke-{row["id"]}" popover.*?</div></form></div>', browser.get("/tokens").text, re.DOTALL)
    assert asks
    assert "It cannot be undone" in asks.group()
    assert browser.post(f"/tokens/{row['id']}/revoke", data={"csrf": fields["csrf"]}).status_code == 303
    assert api.get("/api/v1/tokens").status_code == 401


@pytest.mark.parametrize(
    ("changed", "field", "says"),
    [
        ({"name": "  "}, "name", "give it a name"),
        ({"name": "x" * 101}, "name", "at most 100 letters"),
        ({"scope": "root"}, "scope", "choose one of"),
        ({"expires_in_days": "0"}, "expires_in_days", "from 1 to 3650"),
        ({"expires_in_days": "a year"}, "expires_in_days", "from 1 to 3650"),
        ({"expires_in_days": "9" * 5000}, "expires_in_days", "from 1 to 3650"),
    ],
)
def test_a_mistake_stands_beside_its_field(opened: Open, changed: dict[str, str], field: str, says: str) -> None:
    browser = opened("keeper")
    fields = {"csrf": mark(browser.get("/tokens").text), "name": "kept <b>", "scope": "worker", "expires_in_days": "7"}
    answer = browser.post("/tokens", data=fields | changed)
    assert answer.status_code == 422
    said = re.search(rf'id="problem-tokens-{field}" role="alert">.*?</svg> (.*?)</span>', answer.text, re.DOTALL)
    assert said
    assert says in said.group(1)
    if field != "name":
        assert 'value="kept &lt;b&gt;"' in answer.text
    with browser.app.state.database.session(writes=False) as session:  # type: ignore[attr-defined]
        assert session.query(Token).filter(Token.name.like("kept%")).count() == 0
