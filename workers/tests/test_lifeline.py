"""The attempt's connection: what is logged arrives once and whole, and commits are told before anything is built."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest

from gprojci_workers import attempt
from gprojci_workers.api import Api, ServiceUnreachable
from gprojci_workers.failure import AttemptCancelled
from gprojci_workers.lifeline import CHUNK, Lifeline

ATTEMPT = {"id": 1, "fencing_token": 7, "heartbeat_seconds": 10}


class Service:
    """Stores log lines as the service does, by number; some of its answers are lost."""

    def __init__(self) -> None:
        self.chunks: dict[int, str] = {}
        self.beats: list[dict[str, Any]] = []
        self.lost_answers = 0
        self.cancel = False

    def log(self, _attempt: int, body: dict[str, Any], *, patience: float = 0) -> None:
        self.chunks.setdefault(body["sequence"], body["text"])
        if self.lost_answers and not patience:  # with patience the client repeats it
            self.lost_answers -= 1
            raise ServiceUnreachable("the answer was lost")

    def heartbeat(self, _attempt: int, body: dict[str, Any], *, patience: float = 0) -> bool:
        self.beats.append({**body, "patience": patience})
        return self.cancel


def test_no_line_is_lost_with_an_answer():
    service = Service()
    lifeline = Lifeline(service, ATTEMPT)  # type: ignore[arg-type]
    service.lost_answers = 1
    lifeline.log("first\n")
    lifeline.flush()
    lifeline.log("second\n")
    lifeline.flush()
    lifeline.flush()
    assert "".join(service.chunks.values()) == "first\nsecond\n"


def test_before_the_report_all_of_it_is_sent():
    service = Service()
    lifeline = Lifeline(service, ATTEMPT)  # type: ignore[arg-type]
    service.lost_answers = 1
    lifeline.log("x" * (2 * CHUNK + 1))
    lifeline.flush_all()
    assert [len(text) for text in service.chunks.values()] == [CHUNK, CHUNK, 1]


def test_a_refused_commit_is_not_built():
    service = Service()
    lifeline = Lifeline(service, ATTEMPT)  # type: ignore[arg-type]
    service.cancel = True
    lifeline.resolved({"head": {"sha": "a" * 40}})
    assert service.beats[0]["resolved"] == {"head": {"sha": "a" * 40}}
    assert service.beats[0]["patience"] > 0
    with pytest.raises(AttemptCancelled), lifeline.step("build"):
        pytest.fail("built")


SAYS_NO = {
    "lease": httpx.Response(409, json={"error": "LeaseLost", "detail": "it is lost"}),
    "attempt": httpx.Response(404, json={"error": "AttemptNotFound", "detail": "there is none"}),
    "cancelled": httpx.Response(200, json={"cancel": True, "lease_seconds": 60}),
}
SAYS_NOTHING = {"error": httpx.Response(503), "away": httpx.ConnectError("away")}


@pytest.mark.parametrize("said", [*SAYS_NO, *SAYS_NOTHING])
def test_an_attempt_is_given_up_where_the_service_says_so_and_goes_on_where_it_says_nothing(worker_settings, said):
    asked = threading.Event()

    def answer(_request):
        asked.set()
        given = (SAYS_NO | SAYS_NOTHING)[said]
        if isinstance(given, Exception):
            raise given
        return given

    api = Api(worker_settings)
    api._client = httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer))
    with Lifeline(api, ATTEMPT) as lifeline:
        assert asked.wait(timeout=10)
    assert lifeline.should_stop() == (said in SAYS_NO)


def test_a_report_is_sent_until_it_is_acknowledged(worker_settings):
    """The service is away when the measurement ends, as it is while it is started anew."""
    answers = [
        httpx.Response(503),
        httpx.ConnectError("away"),
        httpx.Response(200, json={"accepted": True, "reason": ""}),
    ]
    bodies = []

    def answer(request):
        bodies.append(json.loads(request.content))
        given = answers[min(len(bodies), 3) - 1]
        if isinstance(given, Exception):
            raise given
        return given

    api = Api(worker_settings)
    api._client = httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer))
    lifeline = Lifeline(api, ATTEMPT)
    attempt.report(api, {"attempt": ATTEMPT}, lifeline, {"status": "measured", "report": {}})
    assert [(body["status"], body["fencing_token"]) for body in bodies] == [("measured", 7)] * 3
