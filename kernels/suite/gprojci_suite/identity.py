"""Which code this is: the ruler's own, or a backend's. Imports no torch: a worker asks before each measurement."""

import hashlib
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from gprojci_suite import __version__
from gprojci_suite.contract.report import Ruler


def ruler() -> Ruler:
    """Version and revision of the suite: the commit of its clean checkout, else a hash of the package's files."""
    file = Path(__file__).resolve()
    return Ruler(__version__, _commit(file, ".") or f"package-{_hash(file.parent, _of_ruler(file.parent))}")


def of_module(module: ModuleType) -> str | None:
    """Revision of a top-level module or package: the commit of its clean checkout, else a hash of its files.

    None where it has no file, as one in a zip archive.
    """
    name = getattr(module, "__file__", None)
    if name is None or not (file := Path(name).resolve()).is_file():
        return None
    if file.name != "__init__.py":
        return _commit(file, file.name) or f"file-{_hash(file.parent, [file])}"
    files = (path for path in file.parent.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return _commit(file, ".") or f"package-{_hash(file.parent, files)}"


def _commit(file: Path, what: str) -> str | None:
    """The commit of the checkout of a file, where `what` is unchanged beside it; None where there is none."""
    commit = _git(file.parent, "rev-parse", "--verify", "HEAD")
    # A package installed below somebody else's checkout is not part of it, and changed files are no commit's.
    tracked = _git(file.parent, "ls-files", "--error-unmatch", file.name)
    clean = commit and tracked and _git(file.parent, "status", "--porcelain", "--", what) == ""
    return commit if clean else None


def _git(directory: Path, *arguments: str) -> str | None:
    """Output of a git command, or None where git or a repository is missing or the command fails."""
    command = ["git", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _of_ruler(package: Path) -> Iterator[Path]:
    return (path for path in package.rglob("*") if path.is_file() and path.suffix in (".py", ".xz"))


def _hash(directory: Path, files: Iterable[Path]) -> str:
    """Of the names and contents of files below a directory."""
    digest = hashlib.sha256()
    for path in sorted(files):
        name = path.relative_to(directory).as_posix()
        digest.update(f"{name}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:40]
