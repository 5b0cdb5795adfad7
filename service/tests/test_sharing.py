"""What other pages show of a project: badges, pictures, frames and the feed, over the seeded story."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from gprojci_service.access import service as access
from gprojci_service.app import create_app
from gprojci_service.models import Job, Project, Verdict
from gprojci_service.models.job import OBSERVING_KINDS
from gprojci_service.sharing import card

sys.path.insert(0, str(Path(__file__).parent))
from test_pages_seed import NASTY, seeding, settings_for

SVG, ATOM = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/2005/Atom}"
PROJECT = "gproj-ci/gproj"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with seeding(tmp_path_factory.mktemp("sharing")) as (app, seed):
        seed.everything()
        seed.add(Project(name="new/born", clone_url="https://github.com/new/born.git"))
    with TestClient(app) as made:
        yield made


def read(client: TestClient, address: str) -> str:
    """The text of an SVG file, title first."""
    answer = client.get(address)
    assert answer.status_code == 200, address
    assert answer.headers["content-type"] == "image/svg+xml"
    return " | ".join(ElementTree.fromstring(answer.content).itertext())


@pytest.mark.parametrize(
    ("badge", "words"),
    [
        ("gate", ["gate: fail at a3b4a3b4: build error", "| gate | fail"]),
        ("dq_error", ["0.187% at 5e6f5e6f, gproj on late-keybias, cpu-x86-64, limit 0.35%", "| dQ error | 0.187%"]),
        ("dq_error?input=early-rope", ["gproj on early-rope"]),
        ("dq_error?backend=zerosum", ["zerosum on late-keybias"]),
        ("dq_error?input=nobody-knows", ["| dQ error | no data"]),
        ("kernel_overhead", ["| kernel overhead | +"]),
    ],
)
def test_a_badge_says_what_stands_on_the_default_branch(client: TestClient, badge: str, words: list[str]) -> None:
    name, _, query = badge.partition("?")
    text = read(client, f"/badges/{PROJECT}/{name}.svg?{query}")
    assert [word for word in words if word not in text] == [], text


def test_a_badge_is_red_over_the_limit_and_says_by_what(client: TestClient) -> None:
    database = client.app.state.database  # type: ignore[attr-defined]
    with database.session(writes=True) as session:
        before = {verdict.id: verdict.policy for verdict in session.query(Verdict)}
        for verdict in session.query(Verdict):
            verdict.policy = {**verdict.policy, "dq_error_ceiling": 0.001}
    text = client.get(f"/badges/{PROJECT}/dq_error.svg").text
    with database.session(writes=True) as session:
        for verdict in session.query(Verdict):
            verdict.policy = before[verdict.id]
    assert "0.187% &gt; 0.1%" in text
    assert "#b3261e" in text


def test_a_search_among_older_commits_does_not_speak_for_the_branch(client: TestClient) -> None:
    database = client.app.state.database  # type: ignore[attr-defined]
    with database.session(writes=True) as session:
        newest = session.query(Job).filter(Job.head_sha.startswith("a3b4")).one()
        newest.kind = OBSERVING_KINDS[0]
    text = client.get(f"/badges/{PROJECT}/gate.svg").text
    with database.session(writes=True) as session:
        session.query(Job).filter(Job.head_sha.startswith("a3b4")).one().kind = "push"
    assert "gate: pass at 5e6f5e6f" in text


@pytest.mark.parametrize("badge", ["gate", "dq_error", "o_error", "step_overhead", "kernel_overhead"])
def test_a_badge_owns_up_to_having_no_data(client: TestClient, badge: str) -> None:
    assert read(client, f"/badges/new/born/{badge}.svg").endswith("| no data")


def test_what_is_not_there_is_said_in_the_shape_of_all_errors(client: TestClient) -> None:
    for address, error in (
        (f"/badges/{PROJECT}/speed.svg", "BadgeNotFound"),
        ("/badges/no/body/gate.svg", "ProjectNotFound"),
        (f"/embed/{PROJECT}/pie.svg", "ChartNotFound"),
        ("/embed/new/born/history.svg", "ChartNotFound"),
        ("/embed/new/born/pareto", "ChartNotFound"),
        ("/projects/no/body/feed.atom", "ProjectNotFound"),
    ):
        answer = client.get(address)
        assert (answer.status_code, answer.json()["error"]) == (404, error), address


def test_copies_are_kept_for_minutes_and_asked_after_by_their_mark(client: TestClient) -> None:
    first = client.get(f"/badges/{PROJECT}/gate.svg")
    assert first.headers["cache-control"] == "public, max-age=300"
    again = client.get(f"/badges/{PROJECT}/gate.svg", headers={"If-None-Match": f'"x", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get(f"/badges/{PROJECT}/gate.svg", headers={"If-None-Match": '"x"'})
    assert (other.status_code, other.headers["etag"]) == (200, first.headers["etag"])


def test_the_feed_has_what_rfc_4287_asks_for(client: TestClient) -> None:
    answer = client.get(f"/projects/{PROJECT}/feed.atom")
    assert answer.headers["content-type"] == "application/atom+xml"
    root = ElementTree.fromstring(answer.content)
    assert root.tag == f"{ATOM}feed"
    entries = root.findall(f"{ATOM}entry")
    assert len(entries) == 6  # five pushes and one build error; pull requests are not the branch
    for element in (root, *entries):
        for name in ("id", "title", "updated"):
            assert len(element.findall(f"{ATOM}{name}")) == 1, name
        assert datetime.fromisoformat(element.findtext(f"{ATOM}updated") or "").tzinfo is not None
        assert (element.findtext(f"{ATOM}id") or "").startswith("http://127.0.0.1:8000/")
        links = element.findall(f"{ATOM}link[@rel='alternate']")
        assert len(links) == 1
    assert root.findtext(f"{ATOM}author/{ATOM}name")  # so that entries need none
    assert len({entry.findtext(f"{ATOM}id") for entry in entries}) == len(entries)
    moments = [entry.findtext(f"{ATOM}updated") for entry in entries]
    assert moments == sorted(moments, reverse=True)
    assert root.findtext(f"{ATOM}updated") == moments[0]
    titles = [entry.findtext(f"{ATOM}title") for entry in entries]
    assert titles[0] == "fail: Rename the package"
    assert any(NASTY in (title or "") for title in titles)
    assert NASTY not in answer.text
    empty = ElementTree.fromstring(client.get("/projects/new/born/feed.atom").content)
    assert empty.findtext(f"{ATOM}updated")


def test_a_feed_is_xml_whatever_a_commit_says(client: TestClient) -> None:
    with client.app.state.database.session(writes=True) as session:  # type: ignore[attr-defined]
        job = session.query(Job).filter(Job.ref == "main").first()
        assert job is not None
        verdict = session.query(Verdict).filter(Verdict.job_id == job.id).one()
        before, verdict.summary = verdict.summary, "\x00\x0b\ufffe]]>&<"
    answer = client.get(f"/projects/{PROJECT}/feed.atom")
    with client.app.state.database.session(writes=True) as session:  # type: ignore[attr-defined]
        session.query(Verdict).filter(Verdict.job_id == job.id).one().summary = before
    assert "]]>&<" in " ".join(ElementTree.fromstring(answer.content).itertext())


def test_charts_are_pictures_and_frames_with_the_choices_of_their_pages(client: TestClient) -> None:
    history = read(client, f"/embed/{PROJECT}/history.svg?metric=dk_error&input=early-rope&backend=gproj")
    assert "dK error, median on early-rope" in history
    assert "emulated-fa3" not in history
    pareto = read(client, f"/embed/{PROJECT}/pareto.svg")
    assert [word for word in ("gproj", "sdpa-flash", "gate: 0.35%", "1×") if word not in pareto] == []
    frame = client.get(f"/embed/{PROJECT}/history?backend=gproj")
    policy = frame.headers["content-security-policy"]
    assert "frame-ancestors *" in policy
    assert "unsafe-inline" not in policy
    assert "<form" not in frame.text
    assert f'href="/projects/{PROJECT}/history?backend=gproj"' in frame.text
    for address in ("/", f"/projects/{PROJECT}", f"/projects/{PROJECT}/history"):
        assert "frame-ancestors 'none'" in client.get(address).headers["content-security-policy"]


def test_the_page_offers_what_can_be_copied(client: TestClient) -> None:
    text = client.get(f"/projects/{PROJECT}").text
    assert (
        f"[![gate](http://127.0.0.1:8000/badges/{PROJECT}/gate.svg)](http://127.0.0.1:8000/projects/{PROJECT})" in text
    )
    assert f'type="application/atom+xml" title="Verdicts of {PROJECT}" href="/projects/{PROJECT}/feed.atom"' in text


def test_a_link_to_a_page_says_what_is_there(client: TestClient) -> None:
    failed = client.get("/jobs?state=fail").text
    number = re.findall(r'href="/jobs/(\d+)"', failed)[-1]
    page = client.get(f"/jobs/{number}?tensor=dk").text
    said = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)">', page))
    assert said["title"].startswith("Faster backward: skip the projection")
    assert said["description"].startswith("fail: gproj: dQ error on late-keybias is 33.2%")
    assert said["url"] == f"http://127.0.0.1:8000/jobs/{number}"
    for address in ("/", "/jobs/999999", "/sign-in", f"/projects/{PROJECT}/history"):
        assert client.get(address).text.count('property="og:title"') == 1


@pytest.mark.parametrize(
    ("address", "width", "height"),
    [
        ("previews/jobs/6.png", 1200, 630),
        ("previews/jobs/8.png", 1200, 630),  # it runs
        ("previews/jobs/12.png", 1200, 630),  # it waits
        ("previews/bisections/1.png", 1200, 630),
        ("previews/bisections/2.png", 1200, 630),
        (f"embed/{PROJECT}/pareto.png?metric=dk_error", 1520, 800),
        (f"embed/{PROJECT}/history.png", 1520, 800),
    ],
)
def test_a_picture_in_pixels(client: TestClient, address: str, width: int, height: int) -> None:
    answer = client.get(f"/{address}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    picture = Image.open(io.BytesIO(answer.content))
    assert (picture.format, picture.size) == ("PNG", (width, height))
    assert len(picture.convert("RGB").getcolors(1 << 20)) > 20  # more than a plane: letters are smoothed
    again = client.get(f"/{address}", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


def test_a_preview_says_the_verdict_and_why() -> None:
    text = card.svg(
        card.Card("fail", "the gate fails", f"Faster {NASTY} {'long ' * 40}", ("dQ error is 33.2%",) * 9, "o/r")
    )
    root = ElementTree.fromstring(text)
    lines = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert lines[0] == "the gate fails"
    assert lines[1].startswith("Faster <script>")
    assert lines[2].endswith("…")
    assert lines.count("dQ error is 33.2%") == 3
    assert lines[-2:] == ["o/r", "GProj CI"]


def test_pages_name_their_previews_where_anybody_may_read(client: TestClient) -> None:
    named = {
        "/jobs/6": "/previews/jobs/6.png",
        "/bisections/1": "/previews/bisections/1.png",
        f"/projects/{PROJECT}": f"/embed/{PROJECT}/pareto.png",
        f"/projects/{PROJECT}/history?backend=gproj": f"/embed/{PROJECT}/history.png?backend=gproj",
    }
    for address, path in named.items():
        found = re.search(r'property="og:image" content="http://127.0.0.1:8000([^"]+)"', client.get(address).text)
        assert found, address
        assert found.group(1) == path
        assert client.get(path).status_code == 200
    assert "og:image" not in client.get("/jobs").text


@pytest.mark.parametrize("address", ["jobs/999", "regressions/1", "bisections/9", "workers/1"])
def test_there_is_no_preview_of_what_is_not_there(client: TestClient, address: str) -> None:
    assert client.get(f"/previews/{address}.png").status_code == 404


def test_where_reading_is_closed_nothing_is_shared(tmp_path: Path) -> None:
    settings = settings_for(tmp_path).model_copy(update={"public_read": False})
    app = create_app(settings)
    app.state.database.migrate()
    with app.state.database.session(writes=True) as session:
        session.add(Project(name="new/born", clone_url="https://github.com/new/born.git"))
        _, secret = access.create_token(session, "reader", "write")
    with TestClient(app) as client:
        pictures = ("/embed/new/born/history.svg", "/embed/new/born/history.png", "/previews/jobs/1.png")
        for address in ("/badges/new/born/gate.svg", "/projects/new/born/feed.atom", *pictures):
            assert client.get(address).status_code == 401
        signed_in = client.get("/projects/new/born", headers={"Authorization": f"Bearer {secret}"})
        assert "og:image" not in signed_in.text
        answer = client.get("/badges/new/born/gate.svg", headers={"Authorization": f"Bearer {secret}"})
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "private, no-cache")
