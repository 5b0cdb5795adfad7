"""Reports measured elsewhere: imported by API and command, kept once, checked against the contract."""

from __future__ import annotations

import gzip
import json

import pytest
from click.testing import CliRunner

from gprojci_service.cli import cli
from gprojci_service.models import ImportedReport


def post(service, body, title="peers", headers=None):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return service.client.post(
        "/api/v1/reports",
        params={"title": title},
        content=content,
        headers=service.write_headers if headers is None else headers,
    )


def test_the_same_report_is_kept_once_under_its_newest_title(service, make_report):
    report = make_report()
    first = post(service, report)
    assert first.status_code == 201, first.text
    again = post(service, dict(reversed(list(report.items()))), title="All peers")
    assert again.status_code == 200
    assert again.json()["id"] == first.json()["id"]
    other = post(service, make_report(dq=0.3))
    assert other.status_code == 201
    listed = service.client.get("/api/v1/reports").json()
    assert [entry["title"] for entry in listed] == ["peers", "All peers"]
    kept = service.client.get(f"/api/v1/reports/{first.json()['id']}").json()
    assert kept["accuracy"]["summary"] == report["accuracy"]["summary"]


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"\xff\xfe", "UTF-8"), (b"{", "not a report of gprojci-suite"), ({"schema_version": 1}, "created_at")],
)
def test_what_is_no_report_is_refused_with_the_reason(service, body, words):
    answer = post(service, body)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]
    assert service.client.get("/api/v1/reports").json() == []


def test_only_a_writer_imports_and_removes(service, make_report):
    assert post(service, make_report(), headers={}).status_code == 401
    assert post(service, make_report(), headers=service.worker_headers).status_code == 403
    number = post(service, make_report()).json()["id"]
    assert service.client.delete(f"/api/v1/reports/{number}").status_code == 401
    assert service.client.delete(f"/api/v1/reports/{number}", headers=service.write_headers).status_code == 204
    gone = service.client.get(f"/api/v1/reports/{number}")
    assert (gone.status_code, gone.json()["error"]) == (404, "ReportNotFound")


def test_a_report_over_the_limit_is_refused(service, make_report):
    service.app.state.settings = service.settings.model_copy(update={"max_report_bytes": 1000})
    assert post(service, make_report()).status_code == 413


def test_a_stored_report_of_an_unknown_format_says_so(service, make_report):
    number = post(service, make_report()).json()["id"]
    with service.context.database.session(writes=True) as session:
        session.get_one(ImportedReport, number).body = {"schema_version": 99}
    page = service.client.get(f"/reports/{number}")
    assert page.status_code == 409
    assert "has a format that this version does not read" in page.text


@pytest.fixture
def at_service(service, monkeypatch):
    """Has the commands speak to the application in this process."""
    monkeypatch.setattr("gprojci_service.client.httpx.Client", lambda base_url, headers, timeout: service.client)
    service.client.base_url = "http://testserver/api/v1"
    service.client.headers.update(service.write_headers)

    def run(*arguments):
        return CliRunner().invoke(cli, list(arguments))

    return run


def test_the_command_imports_packed_files_and_lists_and_removes(at_service, make_report, tmp_path):
    file = tmp_path / "h200-peers.json.gz"
    file.write_bytes(gzip.compress(json.dumps(make_report()).encode()))
    done = at_service("report", "import", str(file))
    assert (done.exit_code, done.output) == (0, "report 1: h200-peers\n")
    assert "cpu-x86-64" in at_service("report", "list").output
    assert at_service("report", "remove", "1").exit_code == 0
    assert at_service("report", "remove", "1").exit_code == 2
    assert at_service("report", "list").output == ""
    file.write_bytes(b"no gzip")
    broken = at_service("report", "import", str(file))
    assert broken.exit_code == 2
    assert "not a gzip file" in broken.output
