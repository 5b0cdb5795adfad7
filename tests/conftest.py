"""What the tests across packages share: a kernel's repository and the two forms of the service."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def _load(name: str) -> Any:
    """A module beside this file: in importlib mode the tests' folder is not on the path."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


deployment = _load("deployment")


@pytest.fixture
def kernel_repository(tmp_path: Path) -> Any:
    """A git repository with a small kernel and its manifest."""
    return deployment.KernelRepository(tmp_path / "kernel")


@pytest.fixture(params=["processes", "embedded"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The running service, once as processes on PostgreSQL and Redis, once as `gprojci serve`."""
    if request.param == "processes":
        database, broker = request.getfixturevalue("postgres_url"), request.getfixturevalue("broker_url")
        service = deployment.Processes(tmp_path / "service", database, broker)
    else:
        service = deployment.Embedded(tmp_path / "service")
    with service:
        yield service


@pytest.fixture(scope="module", params=["processes", "embedded"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The same for the tests of a module that leave it as it was, each with a project of its own."""
    directory = tmp_path_factory.mktemp("shared") / "service"
    if request.param == "processes":
        database, broker = (request.getfixturevalue(name) for name in ("_new_postgres_database", "module_broker_url"))
        service = deployment.Processes(directory, database(), broker)
    else:
        service = deployment.Embedded(directory)
    with service:
        yield service


@pytest.fixture
def embedded(tmp_path: Path) -> Callable[[], Any]:
    """Makes `gprojci serve` on one and the same data directory, to be started and stopped by the test."""
    return lambda: deployment.Embedded(tmp_path / "service")
