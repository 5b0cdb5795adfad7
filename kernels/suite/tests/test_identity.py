"""Which code something is: a clean checkout's commit, else a hash of the files."""

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from gprojci_suite import identity


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git repository with a package and a module in it, committed."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("from mine import part\n")
    (tmp_path / "mine" / "part.py").write_text("")
    (tmp_path / "single.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return tmp_path


def git(directory: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", directory, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def module(file: Path) -> ModuleType:
    """The module of a file, not executed."""
    spec = importlib.util.spec_from_file_location("mine", file)
    assert spec is not None
    return importlib.util.module_from_spec(spec)


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    package, single = module(checkout / "mine" / "__init__.py"), module(checkout / "single.py")
    assert identity.of_module(package) == identity.of_module(single) == commit
    (checkout / "beside.txt").write_text("of no part of either")
    (checkout / "single.py").write_text("changed = True\n")
    assert identity.of_module(package) == commit


def test_what_is_changed_or_not_tracked_is_the_hash_of_its_files(checkout: Path) -> None:
    package, single = module(checkout / "mine" / "__init__.py"), module(checkout / "single.py")
    (checkout / "single.py").write_text("changed = True\n")
    (checkout / "mine" / "kernel.so").write_bytes(b"compiled")
    found = [identity.of_module(package), identity.of_module(single)]
    assert [(name or "").partition("-")[0] for name in found] == ["package", "file"]
    (checkout / "mine" / "__pycache__").mkdir()
    (checkout / "mine" / "__pycache__" / "part.pyc").write_bytes(b"written by the import")
    assert identity.of_module(package) == found[0]
    (checkout / "mine" / "kernel.so").write_bytes(b"compiled anew")
    assert identity.of_module(package) not in (found[0], None)
    (checkout / "single.py").write_text("changed = False\n")
    assert identity.of_module(single) not in (found[1], None)


def test_what_has_no_file_has_no_revision() -> None:
    assert identity.of_module(ModuleType("mine")) is None
