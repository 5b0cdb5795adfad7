"""Input sets from the service: fetched once, checked always, resumed where they broke off, linked for the ruler."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from gprojci_suite.contract import input_file
from gprojci_workers import inputs as worker_inputs
from gprojci_workers.api import Api
from gprojci_workers.failure import AttemptCancelled, AttemptFailed
from gprojci_workers.inputs import Inputs

SHAPE = [1, 2, 512, 64]
SIZE = 2 * 512 * 64 * 2


def capture(value: int = 0x3F) -> bytes:
    """The bytes of an input set of a quarter of a megabyte."""
    header = {
        f"L0.{part}": {"dtype": "BF16", "shape": SHAPE, "data_offsets": [place * SIZE, (place + 1) * SIZE]}
        for place, part in enumerate(("do", "k", "q", "v"))
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes([0, value]) * (4 * SIZE // 2)


class Service:
    """The worker API's two routes about input sets, on a real socket, and what a test has it do wrong."""

    def __init__(self, files: dict[str, bytes], directory: Path) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.cut_first = False
        self.files: dict[str, bytes] = {}
        self.hashes: dict[str, str] = {}
        for name, data in files.items():
            (directory / name).write_bytes(data)
            self.hashes[name] = input_file.check(directory / name)[1]
            self.files[name] = self.files[self.hashes[name]] = data
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                path = unquote(self.path.removeprefix("/api/v1/worker/inputs/"))
                service.asked.append((path, self.headers.get("Range")))
                name, _, what = path.partition("/")
                data = service.files.get(name)
                if data is None:
                    self.reply(404, json.dumps({"error": "InputSetNotFound", "detail": name}).encode())
                elif what != "file":
                    found = next(key for key in service.hashes if service.files[key] is data)
                    body = {"name": found, "content_hash": service.hashes[found], "uploaded": {"size_bytes": len(data)}}
                    self.reply(200, json.dumps(body).encode())
                else:
                    begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
                    self.reply(206 if begin else 200, data[begin:], cut=service.cut_first and begin == 0)

            def reply(self, status: int, body: bytes, *, cut: bool = False) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if cut else body)
                self.close_connection = cut

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "served").mkdir()
    made = Service({"mine": capture(), "other": capture(0x40)}, tmp_path / "served")
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join(timeout=10)


@pytest.fixture
def provide(service: Service, worker_settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the `Inputs` of a new attempt; keyword arguments change the settings."""
    monkeypatch.setattr(worker_inputs, "ruler_facts", lambda python: {"inputs": ["late-keybias"]})
    attempts = iter(range(100))

    def make(stop: bool = False, **changes: Any) -> Inputs:
        address = f"http://127.0.0.1:{service.server.server_address[1]}"
        settings = worker_settings.model_copy(update={"service_url": address, **changes})
        scratch = tmp_path / f"attempt-{next(attempts)}"
        scratch.mkdir()
        return Inputs(settings, Api(settings), scratch, lambda text: None, lambda: stop)

    return make


def test_what_is_here_is_not_asked_for(provide: Any, service: Service, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "local.safetensors").write_bytes(capture(0x3E))
    made = provide(input_dir=own)
    made.provide(["late-keybias", "synthetic:offset?seq=64", "/data/x.safetensors", "local"])
    assert service.asked == []
    assert made.directory == own
    made.provide(["mine"])
    assert sorted(path.name for path in made.directory.iterdir()) == ["local.safetensors", "mine.safetensors"]
    assert (made.directory / "mine.safetensors").read_bytes() == capture()


def test_a_file_is_fetched_once_and_checked_every_time(provide: Any, service: Service) -> None:
    first, second = provide(), provide()
    first.provide(["mine"])
    second.provide(["mine", service.hashes["mine"]])
    assert [path for path, _ in service.asked if path.endswith("/file")] == [f"{service.hashes['mine']}/file"]
    digest = service.hashes["mine"].removeprefix("sha256:")
    assert {path.stem for path in second.directory.iterdir()} == {"mine", digest}
    (cached,) = second.cache.iterdir()
    cached.write_bytes(capture(0x40))
    third = provide()
    third.provide(["mine"])
    assert (third.directory / "mine.safetensors").read_bytes() == capture(), "a damaged file is fetched again"


def test_a_download_that_breaks_off_goes_on_where_it_ended(provide: Any, service: Service) -> None:
    service.cut_first = True
    made = provide()
    made.provide(["mine"])
    assert (made.directory / "mine.safetensors").read_bytes() == capture()
    ranges = [begin for path, begin in service.asked if path.endswith("/file")]
    assert ranges == [None, f"bytes={len(capture()) // 2}-"]


def test_other_content_than_promised_is_not_used(provide: Any, service: Service) -> None:
    service.files[service.hashes["mine"]] = capture(0x41)
    made = provide()
    with pytest.raises(AttemptFailed, match="as it arrived") as caught:
        made.provide(["mine"])
    assert caught.value.kind == "lost_worker"
    assert list(made.cache.iterdir()) == []


def test_a_name_that_nobody_knows_says_how_to_upload_it(provide: Any) -> None:
    with pytest.raises(AttemptFailed, match="`gprojci inputs upload FILE --name typo`") as caught:
        provide().provide(["typo"])
    assert caught.value.kind == "build_error"
    with pytest.raises(AttemptFailed, match="cannot be the name"):
        provide().provide(["../../etc/passwd"])
    provide().provide(["sha256:" + "0" * 64])  # the ruler may bundle it


def test_a_service_that_is_gone_is_no_fault_of_the_commit(provide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_inputs, "PATIENCE", 0.1)
    with pytest.raises(AttemptFailed) as caught:
        provide(service_url="http://127.0.0.1:9").provide(["mine"])
    assert caught.value.kind == "lost_worker"


def test_a_cancelled_attempt_stops_fetching(provide: Any) -> None:
    made = provide(stop=True)
    with pytest.raises(AttemptCancelled):
        made.provide(["mine"])
    assert list(made.cache.iterdir()) == []


def test_what_was_not_used_for_a_week_is_removed(provide: Any) -> None:
    made = provide()
    made.provide(["mine", "other"])
    old, kept = sorted(made.cache.iterdir())
    os.utime(old, (time.time() - worker_inputs.UNUSED_SECONDS - 60,) * 2)
    name = "mine" if kept.read_bytes() == capture() else "other"
    provide().provide([name])
    assert list(made.cache.iterdir()) == [kept]
