"""Uploaded input sets: checked as they come, whole or not at all, one content one name; who may read and remove."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import click
import httpx
import pytest
import training_example as example
import uvicorn
from click.testing import CliRunner
from fastapi.testclient import TestClient

from gprojci_service.app import create_app
from gprojci_service.cli import cli
from gprojci_service.inputs import service as inputs
from gprojci_service.models import InputFile, Project
from gprojci_service.training import commands as training
from gprojci_suite.contract import bundled, input_file

FINITE = [high << 8 | low for high in (0x3E, 0x3F, 0xBF) for low in range(256)]


def capture(seed=0, *, heads=2, seq=16, spoil=None, **metadata):
    """The bytes of a small input set in bfloat16."""
    drawn = random.Random(seed)
    header, body = {"__metadata__": {"step": "7", **metadata}}, b""
    for part in ("do", "k", "q", "v"):
        count = heads * seq * 8
        header[f"L0.{part}"] = {
            "dtype": "BF16",
            "shape": [1, heads, seq, 8],
            "data_offsets": [len(body), len(body) + 2 * count],
        }
        body += struct.pack(f"<{count}H", *drawn.choices(FINITE, k=count))
    if spoil == "nan":
        body = body[:-2] + struct.pack("<H", 0x7FC0)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.fixture
def service(service, tmp_path):
    """The application with a directory for uploads."""
    service.app.state.settings = service.settings.model_copy(update={"upload_dir": tmp_path / "uploads"})
    service.uploads = tmp_path / "uploads"
    return service


def upload(service, data, name="mine", headers=None, **parameters):
    return service.client.post(
        "/api/v1/inputs",
        params={"name": name, **parameters},
        content=data,
        headers=service.write_headers if headers is None else headers,
    )


def files(service):
    """Every file under the uploads, finished or not."""
    return sorted(path for path in service.uploads.rglob("*") if path.is_file())


def test_an_upload_is_kept_under_its_content_hash_with_its_provenance(service, tmp_path):
    data = capture(note="a run of mine")
    (tmp_path / "x.safetensors").write_bytes(data)
    content_hash = input_file.check(tmp_path / "x.safetensors")[1]
    answer = upload(service, data)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["name"], made["content_hash"]) == ("mine", content_hash)
    assert made["description"]["provenance"] == {"step": "7", "note": "a run of mine"}
    assert (
        made["description"]["layers"][0] | {"layer": "L0", "kv_heads": 2, "head_dim": 8}
        == (made["description"]["layers"][0])
    )
    assert made["uploaded"]["size_bytes"] == len(data)
    assert made["uploaded"]["uploaded_by"] == "u"
    (kept,) = files(service)
    assert kept.stem == content_hash.removeprefix("sha256:")
    assert kept.read_bytes() == data
    assert service.client.get("/api/v1/inputs").json() == [made]
    assert service.client.get("/api/v1/inputs/mine").json() == made
    assert service.client.get(f"/api/v1/inputs/{content_hash}").json() == made


def test_one_content_has_one_name_and_one_name_one_content(service):
    first = upload(service, capture(1), "first").json()
    again = upload(service, capture(1, note="other metadata"), "second")
    assert (again.status_code, again.json()["name"]) == (200, "first")
    other = upload(service, capture(2), "first")
    assert (other.status_code, other.json()["error"]) == (409, "InputNameTaken")
    assert "a name keeps its content" in other.json()["detail"]
    assert len(files(service)) == 1
    files(service)[0].unlink()
    assert upload(service, capture(1), "first").json()["content_hash"] == first["content_hash"]
    assert len(files(service)) == 1, "a file that was lost is there again"


def test_the_rulers_names_are_taken(service):
    assert bundled.names() == ["early-keybias", "early-rope", "late-keybias"]
    refused = upload(service, capture(), "late-keybias")
    assert (refused.status_code, refused.json()["error"]) == (409, "InputNameTaken")
    assert upload(service, bundled.read("early-rope"), "rope").status_code == 201


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "too short"),
        (struct.pack("<Q", 2**40) + b"x" * 100, "longer than"),
        (struct.pack("<Q", 4) + b"nope", "not JSON"),
        (capture()[:-2], "beyond the end"),
        (capture() + b"\0", "belong to no tensor"),
        (capture(spoil="nan"), "L0.v: holds NaN or Inf"),
        (capture(causal="perhaps"), "causal must be true or false"),
    ],
    ids=["empty", "endless-header", "no-json", "truncated", "too-long", "nan", "metadata"],
)
def test_what_is_no_input_set_is_refused_and_gone(service, data, words):
    answer = upload(service, data)
    assert (answer.status_code, answer.json()["error"]) == (422, "InputInvalid")
    assert words in answer.json()["detail"]
    assert files(service) == []
    assert service.client.get("/api/v1/inputs").json() == []


@pytest.mark.parametrize("name", ["", "../up", ".hidden", "x" * 101, "synthetic:offset"])
def test_a_name_is_one_that_a_file_can_have(service, name):
    assert upload(service, capture(), name).status_code == 422


def test_a_full_disk_is_said(service):
    service.uploads.write_text("a file where the directory should be")
    answer = upload(service, capture())
    assert (answer.status_code, answer.json()["error"]) == (507, "StorageFailed")
    assert "GPROJCI_UPLOAD_DIR" in answer.json()["detail"]


def test_who_may_do_what(service):
    assert upload(service, capture(), headers={}).status_code == 401
    assert upload(service, capture(), headers=service.worker_headers).status_code == 403
    assert upload(service, capture(), project="no/body").status_code == 404
    assert files(service) == []
    upload(service, capture())
    get, remove = service.client.get, service.client.delete
    assert get("/api/v1/inputs/mine/file").status_code == 401
    assert get("/api/v1/inputs/mine/file", headers=service.worker_headers).status_code == 403
    assert get("/api/v1/worker/inputs/mine/file", headers=service.write_headers).status_code == 403
    given = get("/api/v1/inputs/mine/file", headers=service.write_headers)
    assert given.content == capture()
    assert given.headers["content-type"] == "application/octet-stream", "never what a browser would render"
    assert remove("/api/v1/inputs/mine").status_code == 401


def test_a_worker_downloads_in_ranges(service):
    data = capture()
    made = upload(service, data).json()
    address = f"/api/v1/worker/inputs/{made['content_hash']}"
    assert service.client.get(address, headers=service.worker_headers).json()["name"] == "mine"
    whole = service.client.get(f"{address}/file", headers=service.worker_headers)
    assert whole.content == data
    assert whole.headers["etag"] == f'"{made["content_hash"]}"'
    rest = service.client.get(f"{address}/file", headers=service.worker_headers | {"Range": "bytes=100-"})
    assert (rest.status_code, rest.content) == (206, data[100:])
    unknown = service.client.get("/api/v1/worker/inputs/nothing", headers=service.worker_headers)
    assert (unknown.status_code, unknown.json()["error"]) == (404, "InputSetNotFound")


def test_only_what_no_report_used_can_be_removed(service, make_report):
    used = upload(service, capture(1), "used").json()
    upload(service, capture(2), "unused")
    entry = make_report()["inputs"][0] | {"input": "used", "content_hash": used["content_hash"]}
    with service.context.database.session(writes=True) as session:
        inputs.record(session, [entry])
    refused = service.client.delete("/api/v1/inputs/used", headers=service.write_headers)
    assert (refused.status_code, refused.json()["error"]) == (409, "InputSetInUse")
    assert service.client.delete("/api/v1/inputs/unused", headers=service.write_headers).status_code == 204
    assert service.client.delete("/api/v1/inputs/unused", headers=service.write_headers).status_code == 404
    (listed,) = service.client.get("/api/v1/inputs").json()
    assert listed["description"]["statistics"] == entry["statistics"], "a report's description comes first"
    assert listed["uploaded"]
    assert len(files(service)) == 1


def test_statistics_are_those_of_that_content(service):
    made = upload(service, capture()).json()
    entries = [
        {"slice": f"L0.b0.h{head}", "offset_spread": 30.5, "largest_logit": 4000.0, "median_top_probability": 0.9}
        for head in range(2)
    ]

    def put(statistics, content_hash=made["content_hash"]):
        body = {"content_hash": content_hash, "statistics": statistics}
        return service.client.put("/api/v1/inputs/mine/statistics", json=body, headers=service.write_headers)

    assert put(entries, "sha256:" + "0" * 64).status_code == 422
    assert "each of the 2 slices" in put(entries[:1]).json()["detail"]
    assert "largest_logit" in put([entries[0] | {"largest_logit": "wide"}, entries[1]]).json()["detail"]
    before = service.client.get("/inputs").text
    assert "with the first report" in before
    assert put(entries).json()["description"]["statistics"] == entries
    page = service.client.get("/inputs").text
    for words in ("mine", "uploaded", "30.5", "4,000", "0.90", made["content_hash"], "with the token u"):
        assert words in page, words


@pytest.fixture
def server(service):
    """The application behind a real socket."""
    server = uvicorn.Server(uvicorn.Config(service.app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield SimpleNamespace(port=server.servers[0].sockets[0].getsockname()[1], service=service)
    server.should_exit = True
    thread.join(timeout=10)


def test_the_limit_holds_for_what_is_declared_promised_and_sent(server):
    service, data = server.service, capture(heads=8, seq=128)
    address = f"http://127.0.0.1:{server.port}/api/v1/inputs?name=mine"
    limited = service.app.state.settings.model_copy(update={"max_input_bytes": len(data) - 1})
    service.app.state.settings = limited

    def send(pieces):
        return httpx.post(address, content=pieces, headers=service.write_headers, timeout=30)

    declared = send(data)
    assert (declared.status_code, declared.json()["error"]) == (413, "PayloadTooLarge")
    promised = send(data[start : start + 1000] for start in range(0, 2000, 1000))
    assert promised.status_code == 413
    assert "its header promises" in promised.json()["detail"]
    service.app.state.settings = limited.model_copy(update={"max_input_bytes": 1000})
    sent = send(iter([struct.pack("<Q", 900_000), b" " * 2000]))
    assert (sent.status_code, "larger than 1000 bytes" in sent.json()["detail"]) == (413, True)
    assert files(service) == []


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_nothing_stays_of_an_upload_whose_connection_is_cut(server, framing):
    service, data = server.service, capture(heads=8, seq=2048)
    lines = [
        "POST /api/v1/inputs?name=mine HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Authorization: {service.write_headers['Authorization']}",
        f"Content-Length: {len(data)}" if framing == "length" else "Transfer-Encoding: chunked",
    ]
    half = data[: len(data) // 2]
    sent = half if framing == "length" else f"{len(half):x}\r\n".encode() + half + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + sent)
        give_up = time.monotonic() + 20
        while not (files(service) and files(service)[0].stat().st_size > 1000) and time.monotonic() < give_up:
            time.sleep(0.02)
        assert files(service), "the upload has begun"
    while files(service) and time.monotonic() < give_up:
        time.sleep(0.02)
    assert files(service) == []
    assert service.client.get("/api/v1/inputs").json() == []
    assert upload(service, data).status_code == 201


def test_what_a_killed_server_left_is_removed_by_the_next_upload(service):
    (service.uploads / "incoming").mkdir(parents=True)
    left, coming = (service.uploads / "incoming" / name for name in ("left", "coming"))
    left.write_bytes(b"half")
    coming.write_bytes(b"half")
    os.utime(left, (time.time() - 90_000,) * 2)
    upload(service, capture())
    assert not left.exists()
    assert coming.exists(), "another upload may be under way"


def test_an_upload_under_way_holds_no_transaction(server):
    """On SQLite one writer at a time: while a file trickles in, others must be able to write."""
    service, data = server.service, capture(heads=8, seq=2048)
    head = (
        f"POST /api/v1/inputs?name=slow HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
        f"Authorization: {service.write_headers['Authorization']}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head.encode() + data[:100_000])
        while not files(service):
            time.sleep(0.02)
        began = time.monotonic()
        assert upload(service, capture(5), "quick").status_code == 201
        assert time.monotonic() - began < 15
        connection.sendall(data[100_000:])
        assert connection.recv(20).startswith(b"HTTP/1.1 201")


def test_the_commands(server, tmp_path, monkeypatch):
    service = server.service
    with service.context.database.session(writes=True) as session:
        session.add(Project(name="o/r", clone_url="file:///x"))
    monkeypatch.setenv("GPROJCI_TOKEN", service.write_headers["Authorization"].split()[1])
    monkeypatch.setenv("GPROJCI_URL", f"http://127.0.0.1:{server.port}")
    file = tmp_path / "run-4000.safetensors"
    file.write_bytes(capture())

    def run(*arguments):
        return CliRunner().invoke(cli, ["inputs", *arguments])

    done = run("upload", str(file), "--name", "mine", "--project", "o/r")
    assert done.exit_code == 0, done.output
    assert "mine: sha256:" in done.output
    (listed,) = service.client.get("/api/v1/inputs").json()
    assert listed["uploaded"]["project"] == "o/r"
    assert [entry["slice"] for entry in listed["description"]["statistics"]] == ["L0.b0.h0", "L0.b0.h1"]
    assert "already, as mine" in run("upload", str(file), "--name", "other").output
    assert "mine" in run("list").output
    file.write_bytes(capture(9))
    taken = run("upload", str(file), "--name", "mine")
    assert taken.exit_code == 2
    assert "a name keeps its content" in taken.output
    file.write_bytes(b"nonsense" * 10)
    broken = run("upload", str(file), "--name", "broken")
    assert broken.exit_code == 2
    assert "not a safetensors file" in broken.output
    assert run("remove", "mine").exit_code == 0
    assert run("list").output == ""
    with service.context.database.session(writes=False) as session:
        assert session.query(InputFile).count() == 0


def test_what_a_training_captured_comes_with_its_report(server, tmp_path, monkeypatch):
    monkeypatch.setenv("GPROJCI_TOKEN", server.service.write_headers["Authorization"].split()[1])
    monkeypatch.setenv("GPROJCI_URL", f"http://127.0.0.1:{server.port}")
    files = [tmp_path / f"run-{part}.safetensors" for part in ("taken", "free", "changed", "broken")]
    contents = []
    for seed, file in enumerate(files):
        file.write_bytes(capture(seed))
        contents.append(input_file.check(file)[1])
    assert upload(server.service, capture(9), "run-taken").status_code == 201
    files[2].write_bytes(capture(8))
    files[3].write_bytes(b"nonsense" * 10)
    run = example.run("fa3", 0, 8.0)
    written = [
        replace(run.captures[0], file=f"elsewhere/{f.name}", content_hash=c)
        for f, c in zip(files, contents, strict=True)
    ]
    absent = replace(run.captures[0], file="run-absent.safetensors")
    report = tmp_path / "report.json"
    report.write_text(example.report((replace(run, captures=(*written, absent)),)).dumps())
    sent = CliRunner().invoke(cli, ["training", "send", str(report), "--captures", str(tmp_path)])
    assert sent.exit_code == 0, sent.output
    assert "run-changed.safetensors is not uploaded: it is not the input set of the report any more" in sent.output
    assert "run-broken.safetensors is not uploaded: not a safetensors file" in sent.output
    named = {entry["name"]: entry["content_hash"] for entry in server.service.client.get("/api/v1/inputs").json()}
    assert named.pop("run-taken") not in contents
    assert named == {f"run-taken-{contents[0].removeprefix('sha256:')[:8]}": contents[0], "run-free": contents[1]}
    again = CliRunner().invoke(cli, ["training", "send", str(report), "--captures", str(tmp_path)])
    assert (again.exit_code, "now" in again.output) == (0, False)


def test_a_training_that_is_followed_goes_on_where_a_capture_is_refused(server, tmp_path, capsys):
    settings = server.service.app.state.settings
    file = tmp_path / "run-fa3.safetensors"
    file.write_bytes(capture())
    run = example.run("fa3", 0, 8.0)
    written = replace(run.captures[0], file=file.name, content_hash=input_file.check(file)[1])
    report = tmp_path / "report.json"
    report.write_text(example.report((replace(run, captures=(written,)),)).dumps())
    url = f"http://127.0.0.1:{server.port}/api/v1"
    client = httpx.Client(base_url=url, headers=server.service.write_headers)
    with client, click.Context(click.Command("send")):
        sender = training._Sender(client, patient=True, captures=tmp_path)
        server.service.app.state.settings = settings.model_copy(update={"max_input_bytes": 1000})
        sender.send((report,))
        told = capsys.readouterr().err
        assert "HTTP 413" in told
        assert "run-fa3.safetensors is not uploaded yet" in told
        server.service.app.state.settings = settings
        os.utime(report, (1, 1))
        sender.send((report,))
    assert "is the input set run-fa3 now" in capsys.readouterr().err
    assert list(sender.answers) == ["keybias"]


def test_the_service_needs_no_torch_for_it():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None; "
        "import gprojci_service.inputs.endpoints, gprojci_service.cli"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_private_instance_keeps_its_inputs(service):
    upload(service, capture())
    private = service.app.state.settings.model_copy(update={"public_read": False})
    app = create_app(private)
    with TestClient(app) as client:
        assert client.get("/api/v1/inputs").status_code == 401
        assert client.get("/api/v1/inputs/mine", headers=service.write_headers).status_code == 200
    app.state.database.close()


def test_provenance_that_no_database_takes_is_made_storable(service):
    answer = upload(service, capture(note="a\x00b \ud800"))
    assert answer.status_code == 201, answer.text
    assert answer.json()["description"]["provenance"]["note"] == "a�b ?"
