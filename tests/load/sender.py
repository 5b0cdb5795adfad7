"""Sends prepared HTTP requests at a fixed rate, in a process of its own, and says how long each answer took.

Reads a pickled `Order` from its input and writes a pickled `Outcome`. A request's time begins when it is due, not when
a connection is free for it: what waits for a slow service counts as slow. Written on sockets, for it takes its share of
the same cores.
"""

from __future__ import annotations

import gc
import itertools
import pickle
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Order:
    """What to send.

    Attributes:
        requests: each a whole HTTP/1.1 request.
        rate: how many a second; None is as fast as the answers come.
        connections: over how many kept connections.
    """

    host: str
    port: int
    requests: list[bytes]
    rate: float | None
    connections: int


@dataclass
class Outcome:
    """What came of it: seconds, status and body for each request, in the order of the requests."""

    seconds: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    took: float = 0.0


def post(host: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """A request."""
    lines = {"Host": host, "Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    return "".join((f"POST {path} HTTP/1.1\r\n", *(f"{k}: {v}\r\n" for k, v in lines.items()), "\r\n")).encode() + body


def send(order: Order) -> Outcome:
    """Has another process send them."""
    done = subprocess.run([sys.executable, __file__], input=pickle.dumps(order), check=True, capture_output=True)
    outcome: Outcome = pickle.loads(done.stdout)
    return outcome


def _answer(connection: socket.socket) -> tuple[int, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _part(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < sum(lengths):
        body += _part(connection)
    return int(head.split(b" ", 2)[1]), body


def _part(connection: socket.socket) -> bytes:
    part = connection.recv(65536)
    if not part:
        raise ConnectionError("the service closed the connection")
    return part


def _send(order: Order) -> Outcome:
    count = len(order.requests)
    outcome = Outcome([0.0] * count, [0] * count, [b""] * count)
    numbers = itertools.count()
    connections = [socket.create_connection((order.host, order.port)) for _ in range(order.connections)]
    begin = time.perf_counter() + 0.2

    def work(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (number := next(numbers)) < count:
            due = time.perf_counter() if order.rate is None else begin + number / order.rate
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.sendall(order.requests[number])
            outcome.statuses[number], outcome.bodies[number] = _answer(connection)
            outcome.seconds[number] = time.perf_counter() - due

    threads = [threading.Thread(target=work, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcome.took = time.perf_counter() - begin
    return outcome


if __name__ == "__main__":
    sys.modules["sender"] = sys.modules["__main__"]  # what it is pickled under
    order = pickle.load(sys.stdin.buffer)
    gc.freeze()
    gc.disable()
    done = _send(order)
    Outcome.__module__ = "sender"
    sys.stdout.buffer.write(pickle.dumps(done))
