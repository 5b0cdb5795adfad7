"""Messages to channels, against a real receiver: signed, tried again, given up, and never into a private network."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner
from sqlalchemy import select, update

from gprojci_service import destination
from gprojci_service.jobs.tasks import reap
from gprojci_service.models import Notification, NotificationChannel, Project, now
from gprojci_service.notifications import commands, formats
from gprojci_service.notifications import outbox as sending
from gprojci_service.notifications import service as notifications
from gprojci_service.notifications.delivery import Letter, send
from gprojci_service.settings import load_settings

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
BODY = formats.message("gate.failed", "2026-11-30T00:00:00Z", "o/r", "critical", "dq <broke> & more", "/jobs/1", {})


class Receiver:
    """An HTTP server that answers as it is told to, the last answer again and again."""

    def __init__(self) -> None:
        self.answers: list[object] = [204]
        self.received: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append(({key.lower(): value for key, value in self.headers.items()}, body))
                answer = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                if answer == "hang up":
                    self.connection.close()
                    return
                if answer == "slow":
                    for _ in range(200):  # never a whole answer, and never a pause that is long in itself
                        self.wfile.write(b"HTTP")
                        time.sleep(0.1)
                    return
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                self.send_response(status)
                for key, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(key, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().handle()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?key=1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver():
    """A receiver on this machine."""
    made = Receiver()
    yield made
    made.stop()


@pytest.fixture
def settings(settings):
    """The service's settings with channels on this machine allowed."""
    return load_settings(**{**settings.model_dump(), "private_notifications": True})


@pytest.fixture
def channel(service, receiver):
    """Makes a channel of a project to the receiver, and returns its number."""
    with service.context.database.session(writes=True) as session:
        session.add(Project(name="o/r", clone_url="https://github.com/o/r.git"))

    def make(name="ops", **changes):
        body = {"project": "o/r", "name": name, "kind": "webhook", "url": receiver.url, "secret": SECRET, **changes}
        made = service.client.post("/api/v1/channels", json=body, headers=service.write_headers)
        assert made.status_code == 201, made.text
        return made.json()["id"]

    return make


def publish(service, event="gate.failed", severity="critical"):
    with service.context.database.session(writes=True) as session:
        project = session.scalars(select(Project)).one()
        facts = {"job_id": 1}
        notifications.publish(session, project, event, severity=severity, title="it broke", path="/jobs/1", facts=facts)
    service.work_off()


def outbox(service):
    with service.context.database.session(writes=False) as session:
        return list(session.scalars(select(Notification).order_by(Notification.id)))


def let_time_pass(service, **passed):
    """Moves what waits into the past, then has the reaper send what is due."""
    earlier = now() - timedelta(**passed)
    with service.context.database.session(writes=True) as session:
        session.execute(update(Notification).values(next_attempt_at=earlier, created_at=earlier))
    reap(service.context)
    service.work_off()


def verify(headers, body):
    """Checks a signature as the specification describes it, without the code under test."""
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    expected = base64.b64encode(hmac.new(b"k" * 32, signed, hashlib.sha256).digest()).decode()
    versions = [part.split(",", 1) for part in headers["webhook-signature"].split(" ")]
    assert ["v1", expected] in versions
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60


def test_without_a_channel_nothing_is_sent(service, channel, receiver):
    publish(service)
    assert outbox(service) == []


def test_a_message_is_signed_and_says_what_happened_and_where(service, channel, receiver):
    channel()
    publish(service)
    ((headers, body),) = receiver.received
    verify(headers, body)
    assert headers["host"] == f"127.0.0.1:{receiver.server.server_port}"
    said = json.loads(body)
    assert said["type"] == "gate.failed"
    assert said["data"] == {
        "project": "o/r",
        "severity": "critical",
        "title": "it broke",
        "url": f"{service.settings.public_url}/jobs/1",
        "job_id": 1,
    }
    (sent,) = outbox(service)
    assert (sent.state, sent.attempts, sent.detail) == ("sent", 1, "HTTP 204")


def test_a_channel_is_told_what_it_asked_for(service, channel, receiver):
    told = [channel("loud", minimum_severity="critical"), channel("named", events=["gate.failed"])]
    channel("other", events=["regression.opened"])
    publish(service)
    publish(service, severity="info")  # below what any of them asked for
    assert sorted(row.channel_id for row in outbox(service)) == told


def test_a_failing_receiver_is_tried_again_with_the_same_message(service, channel, receiver):
    channel()
    receiver.answers = [500, (503, {"Retry-After": "120"}), "hang up", 200]
    publish(service)
    (waiting,) = outbox(service)
    assert (waiting.state, waiting.detail) == ("pending", "HTTP 500")
    reap(service.context)
    service.work_off()
    assert len(receiver.received) == 1, "sent before its time"
    let_time_pass(service, minutes=5)
    (waiting,) = outbox(service)
    assert waiting.next_attempt_at > now() + timedelta(seconds=115)
    let_time_pass(service, minutes=5)
    let_time_pass(service, minutes=5)
    (sent,) = outbox(service)
    assert (sent.state, sent.attempts) == ("sent", 4)
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1
    assert len({body for _, body in receiver.received}) == 1


def test_two_tasks_that_are_told_of_one_message_at_once_send_it_once(service, channel, receiver):
    channel()
    receiver.answers = [500]
    publish(service)
    with service.context.database.session(writes=True) as session:
        session.execute(update(Notification).values(next_attempt_at=None))
    taken = []

    def take():
        with service.context.database.session(writes=True) as session:
            taken.append(sending.take(session, "https://ci.example", 1))

    other = threading.Thread(target=take)
    with service.context.database.session(writes=True) as session:
        taken.append(sending.take(session, "https://ci.example", 1))
        other.start()
        other.join(0.3)  # it waits for this transaction
    other.join(30)
    take()
    assert [letter is None for letter in taken] == [False, True, True]


def test_after_some_days_it_is_given_up_where_it_can_be_seen(service, channel, receiver):
    number = channel()
    receiver.answers = [(302, {"Location": "/elsewhere"})]
    publish(service)
    let_time_pass(service, days=4)
    path = f"/api/v1/channels/{number}/notifications"
    (shown,) = service.client.get(path, headers=service.write_headers).json()
    assert shown["state"] == "failed"
    assert shown["detail"].startswith("given up after 2 tries, the last: HTTP 302: redirects are not followed")
    assert len(receiver.received) == 2


def test_a_receiver_that_is_gone_gets_no_more_until_it_is_tested(service, channel, receiver):
    number = channel()
    receiver.answers = [410, 200]
    publish(service)
    publish(service)
    assert [row.state for row in outbox(service)] == ["failed"]
    (shown,) = service.client.get("/api/v1/projects/o/r/channels", headers=service.write_headers).json()
    assert "HTTP 410" in shown["disabled_reason"]
    service.client.post(f"/api/v1/channels/{number}/test", headers=service.write_headers)
    service.work_off()
    assert outbox(service)[-1].state == "sent"


def test_a_slow_receiver_holds_nobody_up(receiver):
    receiver.answers = ["slow"]
    began = time.monotonic()
    answer = send(Letter("webhook", receiver.url, SECRET, "msg_1", BODY), private=True, deadline=0.4)
    assert (answer.outcome, answer.detail) == ("again", "no answer within 0.4 s")
    assert time.monotonic() - began < 10


def test_slack_gets_its_format_and_no_markup_of_others(receiver):
    assert send(Letter("slack", receiver.url, SECRET, "msg_1", BODY), private=True).outcome == "sent"
    ((headers, body),) = receiver.received
    said = json.loads(body)
    assert said["text"] == "🔴 o/r: dq &lt;broke&gt; &amp; more"
    assert said["blocks"][0]["text"]["type"] == "mrkdwn"
    assert "webhook-signature" not in headers


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://example.com/",
        "https://user:password@example.com/",
        "https://",
        "https://127.0.0.1/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest/meta-data",
        "https://100.64.0.1/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
        "https://[::1]/",
        "https://[fe80::1]/",
        "https://[fd00::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[2002:7f00:1::]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[64:ff9b:1::7f00:1]/",
        "https://example.com:0/",
    ],
)
def test_no_channel_leads_into_a_private_network(url):
    with pytest.raises(destination.DestinationRefused):
        destination.check_url(url, private=False)


def test_a_name_that_leads_into_one_is_refused_when_it_is_sent(receiver):
    url = f"https://localhost:{receiver.server.server_port}/"
    answer = send(Letter("webhook", url, SECRET, "msg_1", BODY), private=False)
    assert answer.outcome == "again"
    assert "is an address of a private network" in answer.detail
    assert receiver.received == []


def test_public_addresses_are_allowed_and_the_connection_goes_to_what_was_checked(monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("93.184.215.14", 443))])
    found = destination.resolve("https://example.com/hook", private=False)
    assert [str(found.at(address)) for address in found.addresses] == ["https://93.184.215.14/hook"]
    assert str(found.at("2001:db8::1")) == "https://[2001:db8::1]/hook"
    addresses = [(2, 1, 6, "", (address, 443)) for address in ("93.184.215.14", "10.0.0.1")]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: addresses)
    with pytest.raises(destination.DestinationRefused):
        destination.resolve("https://example.com/hook", private=False)


def test_a_message_goes_to_the_address_that_was_checked_and_through_no_proxy(receiver, monkeypatch):
    """It is looked up once: between two looks the name may come to lead elsewhere (DNS rebinding)."""
    port, asked = receiver.server.server_port, []

    def once(host, *_, **__):
        asked.append(host)
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(destination.socket, "getaddrinfo", once)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    answer = send(Letter("webhook", f"http://rebound.invalid:{port}/", SECRET, "msg_1", BODY), private=True)
    assert answer.outcome == "sent", answer.detail
    assert asked == ["rebound.invalid"], "the name was looked up again"
    assert receiver.received[0][0]["host"] == f"rebound.invalid:{port}"


REFUSED = [
    ({"project": "no/such"}, "ProjectNotFound"),
    ({"name": "ops"}, "ChannelExists"),
    ({"secret": "short"}, "InvalidRequest"),
    ({"events": ["nonsense"]}, "InvalidRequest"),
    ({"url": "gopher://x"}, "InvalidRequest"),
]


def test_what_cannot_be_used_is_refused(service, channel, receiver):
    channel()
    for changes, error in REFUSED:
        body = {"project": "o/r", "name": "new", "kind": "webhook", "url": receiver.url, **changes}
        answered = service.client.post("/api/v1/channels", json=body, headers=service.write_headers)
        assert answered.json()["error"] == error, changes


def test_secrets_are_shown_once(service, channel, receiver):
    body = {"project": "o/r", "name": "mine", "kind": "webhook", "url": receiver.url}
    channel()
    made = service.client.post("/api/v1/channels", json=body, headers=service.write_headers).json()
    assert made["secret"].startswith("whsec_")
    listed = service.client.get("/api/v1/projects/o/r/channels", headers=service.write_headers).text
    assert made["secret"] not in listed
    assert "key=1" not in listed
    assert service.client.get("/api/v1/projects/o/r/channels").status_code == 401


def test_the_commands_add_test_list_and_remove(service, channel, receiver, monkeypatch):
    def request(client, method, path, **options):
        answered = service.client.request(method, f"/api/v1{path}", headers=service.write_headers, **options)
        assert answered.is_success, answered.text
        service.work_off()
        return answered

    monkeypatch.setattr(commands, "answer", request)
    monkeypatch.setattr(commands, "call", lambda *words, **options: request(*words, **options).json())

    def run(*words, code=0, **options):
        done = CliRunner().invoke(commands.notification, words, **options)
        assert done.exit_code == code, done.output
        return done.output

    made = run("add", "o/r", "ops", "--kind", "slack", "--address", "-", input=f"{receiver.url}\n")
    number = made.split()[1]
    assert "whsec_" not in made
    assert "ops" in run("list", "o/r")
    assert run("test", number) == "sent: HTTP 204\n"
    assert "channel.test" in run("log", number)
    run("remove", number)
    with service.context.database.session(writes=False) as session:
        assert session.scalars(select(NotificationChannel)).all() == []
