"""Which ruler this is. Imports no torch: a worker asks before each measurement."""

import hashlib
import subprocess
from pathlib import Path

from gprojci_suite import __version__
from gprojci_suite.contract.report import Ruler


def ruler() -> Ruler:
    """Version and revision of the suite: the commit of its clean checkout, else a hash of the package's files."""
    package = Path(__file__).resolve().parent
    commit = _git(package, "rev-parse", "--verify", "HEAD")
    # A package installed below somebody else's checkout is not part of it, and changed files are no commit's.
    tracked = _git(package, "ls-files", "--error-unmatch", Path(__file__).name)
    if commit and tracked and _git(package, "status", "--porcelain", "--", ".") == "":
        return Ruler(__version__, commit)
    return Ruler(__version__, f"package-{_package_hash(package)}")


def _git(directory: Path, *arguments: str) -> str | None:
    """Output of a git command, or None where git or a repository is missing or the command fails."""
    command = ["git", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _package_hash(package: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".xz"):
            digest.update(
                f"{path.relative_to(package).as_posix()}\n".encode() + hashlib.sha256(path.read_bytes()).digest()
            )
    return digest.hexdigest()[:40]
