"""A TCP proxy whose connections a test cuts, delays or halves, in front of a TCP or Unix socket."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import threading
import time
from pathlib import Path

_SO_ATTACH_FILTER = 26
_DROP_ALL = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # a BPF program: return 0


class Proxy:
    """Listens on a port of the loopback and hands everything on, as long as the test lets it."""

    def __init__(self, target: Path | tuple[str, int]) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self._open = True
        self.refuses = False
        """Whether the network is cut: connections end, and new ones are refused."""
        self.delay_seconds = 0.0
        """How much later each piece arrives, in both directions."""
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._silent: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends every connection and takes no new one until `mend`."""
        self.refuses = True
        for pair in self._taken():
            for side in pair:
                _end(side)

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._pairs)

    def halve(self) -> None:
        """From now on neither end of the present connections hears of the other, nor of this; new ones pass.

        What a client sends is not even acknowledged, as behind a switch that lost its power.
        """
        pairs = self._taken()
        self._silent += pairs  # kept open
        for client, _ in pairs:
            client.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(_DROP_ALL)))

    def mend(self) -> None:
        """The network is as it should be."""
        self.refuses, self.delay_seconds = False, 0.0

    def close(self) -> None:
        """Ends it and all connections."""
        self._open = False
        self.cut()
        for pair in self._silent:
            for side in pair:
                _end(side)
        self._listening.close()

    def _taken(self) -> list[tuple[socket.socket, socket.socket]]:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        return pairs

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = None if self.refuses else self._connect()
            if server is None:
                _end(client)
                client.close()
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._lock:
                self._pairs.append(pair)
            threading.Thread(target=self._hand_on, args=(pair, client, server), daemon=True).start()
            threading.Thread(target=self._hand_on, args=(pair, server, client), daemon=True).start()

    def _connect(self) -> socket.socket | None:
        family = socket.AF_UNIX if isinstance(self._target, Path) else socket.AF_INET
        server = socket.socket(family, socket.SOCK_STREAM)
        try:
            server.connect(str(self._target) if isinstance(self._target, Path) else self._target)
        except OSError:
            server.close()
            return None
        return server

    def _hand_on(self, pair: tuple[socket.socket, socket.socket], source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                time.sleep(self.delay_seconds)
                if pair not in self._silent:
                    to.sendall(piece)
        with self._lock:
            known = pair in self._pairs  # what was halved keeps its client's half open
            if known:
                self._pairs.remove(pair)
        if known:
            for side in pair:
                _end(side)


def _end(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
