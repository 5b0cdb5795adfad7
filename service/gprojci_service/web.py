"""The web process with several workers: `python -m gprojci_service.web --port 8000 --workers 2`.

`uvicorn --workers` makes its listening socket without naming TCP, for which asyncio leaves Nagle's algorithm on: every
answer on a kept connection then waits 40 ms for the client's delayed acknowledgement. Here the socket says what it is.
"""

from __future__ import annotations

import socket

import click
import uvicorn
from uvicorn.supervisors import Multiprocess


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, help="Port to listen on.")
@click.option("--workers", default=2, show_default=True, help="Processes that answer.")
def main(host: str, port: int, workers: int) -> None:
    """Serves API and pages with several processes, under the settings of the environment."""
    config = uvicorn.Config(
        "gprojci_service.app:create_from_environment", factory=True, workers=workers, access_log=False
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.set_inheritable(True)
        Multiprocess(config, sockets=[listening]).run()


if __name__ == "__main__":
    main()
