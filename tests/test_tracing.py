"""Traces: what an OpenTelemetry collector is told of a webhook, from the request to the task that it made."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from deployment import WIRE, Processes
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gprojci_service import tracing
from gprojci_service.errors import ConfigurationError


class Collector:
    """Takes spans as a collector does: OTLP over HTTP, protobuf."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        taken = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                packed = self.headers.get("Content-Encoding") == "gzip"
                request = ExportTraceServiceRequest.FromString(gzip.decompress(body) if packed else body)
                assert self.path == "/v1/traces"
                for resource in request.resource_spans:
                    names = {one.key: one.value.string_value for one in resource.resource.attributes}
                    taken.extend((names["service.name"], span) for one in resource.scope_spans for span in one.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def span(self, name: str, trace: bytes = b"") -> tuple[str, Span]:
        """The first span whose name begins so, of that trace, once it was told; and of which program it is."""
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            for program, span in list(self.spans):
                if span.name.startswith(name) and span.trace_id.startswith(trace):
                    return program, span
            time.sleep(0.1)
        raise AssertionError(f"no {name}; there are {sorted({span.name for _, span in self.spans})}")


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


def facts(span: Span) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_a_webhook_is_one_trace_through_web_and_tasks(
    tmp_path: Path, postgres_url: str, broker_url: str, collector: Collector, kernel_repository: Any
) -> None:
    service = Processes(tmp_path / "service", postgres_url, broker_url)
    service.environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with service:
        service.kill("worker")
        service.deliver("push", kernel_repository.push(kernel_repository.first), delivery="first-delivery")
        program, webhook = collector.span("POST /webhooks/github")
        assert (program, facts(webhook)["http.status_code"]) == ("gprojci-web", 202)
        WIRE.get(f"{service.url}/sign-in?code=what-a-private-key-is-fetched-with")
        collector.span("GET /sign-in")
        program, task = collector.span("run/gprojci.process_delivery")
        assert (program, task.trace_id) == ("gprojci-tasks", webhook.trace_id)
        assert facts(task)["gprojci.delivery"] == "first-delivery"
        _, statement = collector.span("INSERT", webhook.trace_id)
        assert "INSERT INTO" in facts(statement)["db.statement"]
    everything = "".join(str(span) for _, span in collector.spans)
    assert "what-a-private-key" not in everything
    assert service.write_token not in everything


def test_a_collector_without_what_sends_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not tracing.wanted()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert tracing.wanted()
    monkeypatch.setattr(tracing, "_NEEDS", ("sdk", "exporter.smoke.signals"))
    with pytest.raises(ConfigurationError, match=r"without opentelemetry's exporter.smoke.signals; `pip install"):
        tracing.wanted()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not tracing.wanted()
