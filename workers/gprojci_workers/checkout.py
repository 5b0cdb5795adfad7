"""Step fetch: commits into a bare clone that is kept, and a work tree of each for the build."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gprojci_workers import isolation, remote
from gprojci_workers.failure import AttemptFailed

MANIFEST = "gprojci.toml"
GIT_SECONDS = 600


@dataclass(frozen=True)
class Commit:
    """A commit as git tells it."""

    sha: str
    message: str
    author_name: str
    author_email: str
    authored_at: str
    parents: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As the worker API takes it."""
        return {**self.__dict__, "parents": list(self.parents)}


class Repository:
    """The kept bare clone of one project."""

    def __init__(
        self, cache_dir: Path, clone_url: str, clone_token: str | None, *, private_network: bool = False
    ) -> None:
        self.key = hashlib.sha256(clone_url.encode()).hexdigest()[:24]
        """What this project's things are called in the worker's cache."""
        self.directory = cache_dir / "clones" / f"{self.key}.git"
        self.clone_url = clone_url
        self.clone_token = clone_token
        self.private_network = private_network
        self._remote: dict[str, str] = {}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other worker processes of this host out of the clone."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with self.directory.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def fetch(self, head: str, base: str | None, pull_request: int | None) -> None:
        """Brings both commits into the clone.

        Raises:
            AttemptFailed: `checkout_error` where the remote may not or cannot be read, or a commit is gone.
        """
        self._remote = remote.check(self.clone_url, private=self.private_network)
        with self._locked():
            if not (self.directory / "HEAD").exists():
                shutil.rmtree(self.directory, ignore_errors=True)  # a clone that was killed half way
                self._git("init", "--bare", "--quiet", str(self.directory), cwd=self.directory.parent)
            self._git(
                "fetch", "--quiet", "--no-tags", "--force", "--prune", self.clone_url, "+refs/heads/*:refs/heads/*"
            )
            for sha in filter(None, (head, base)):
                if not self._has(sha) and pull_request is not None:
                    reference = f"refs/pull/{pull_request}/head"
                    self._git(
                        "fetch",
                        "--quiet",
                        "--no-tags",
                        "--force",
                        self.clone_url,
                        f"+{reference}:{reference}",
                        check=False,
                    )
                if not self._has(sha):
                    self._git("fetch", "--quiet", "--no-tags", self.clone_url, sha, check=False)
                if not self._has(sha):
                    raise AttemptFailed(
                        "checkout_error", f"commit {sha} is not in {self.clone_url}; was it force-pushed away?"
                    )

    def resolve(self, head: str, base: str | None) -> tuple[Commit, Commit | None]:
        """The head, and its merge base with `base`, or its first parent where none is named."""
        described = self._describe(head)
        if base is not None:
            merge_base = self._git("merge-base", head, base, check=False).strip()
            return described, self._describe(merge_base or base)
        return described, self._describe(described.parents[0]) if described.parents else None

    def manifest(self, sha: str) -> str | None:
        """Text of `gprojci.toml` at a commit, or None where it has none."""
        listed = self._git("ls-tree", "--name-only", sha, "--", MANIFEST).strip()
        return self._git("show", f"{sha}:{MANIFEST}") if listed else None

    def tree(self, sha: str, path: str) -> str:
        """Hash of a directory's tree at a commit: equal hashes, equal content.

        Raises:
            AttemptFailed: `build_error` where there is no such directory.
        """
        spec = f"{sha}^{{tree}}" if path in (".", "") else f"{sha}:{path.strip('/')}"
        answer = self._git("rev-parse", "--verify", "--quiet", spec, check=False).strip()
        if not answer or self._git("cat-file", "-t", answer).strip() != "tree":
            raise AttemptFailed("build_error", f"[build] path {path!r} is not a directory at commit {sha[:10]}")
        return answer

    @contextmanager
    def worktree(self, sha: str, directory: Path) -> Iterator[Path]:
        """The files of a commit, in a directory that is removed afterwards."""
        shutil.rmtree(directory, ignore_errors=True)
        with self._locked():
            self._git("worktree", "prune")
            self._git("worktree", "add", "--quiet", "--detach", "--force", str(directory), sha)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            with self._locked():
                self._git("worktree", "prune", check=False)

    def _describe(self, sha: str) -> Commit:
        name, email, date, parents, message = self._git("show", "-s", "--format=%an%n%ae%n%aI%n%P%n%B", sha).split(
            "\n", 4
        )
        return Commit(self._git("rev-parse", sha).strip(), message.strip(), name, email, date, tuple(parents.split()))

    def _has(self, sha: str) -> bool:
        return self._run("cat-file", "-e", f"{sha}^{{commit}}").returncode == 0

    def _git(self, *arguments: str, cwd: Path | None = None, check: bool = True) -> str:
        done = self._run(*arguments, cwd=cwd)
        if check and done.returncode != 0:
            raise AttemptFailed("checkout_error", f"git {arguments[0]}: {done.stderr.strip()[-2000:]}")
        return done.stdout if done.returncode == 0 else ""

    def _run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs git, which does not outlive this process: the next one takes its lock of the clone."""
        try:
            return subprocess.run(
                isolation.dying(["git", *arguments]),
                cwd=cwd or self.directory,
                env=self._environment(),
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=GIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AttemptFailed("checkout_error", f"git {arguments[0]} took longer than {GIT_SECONDS} s") from error

    def _environment(self) -> dict[str, str]:
        """No prompts, no hooks, no foreign configuration; the token travels in the environment, never in arguments."""
        settings = {"core.hooksPath": os.devnull, "safe.directory": "*", "gc.auto": "0", **self._remote}
        if self.clone_token:
            credential = base64.b64encode(f"x-access-token:{self.clone_token}".encode()).decode()
            settings["http.extraHeader"] = f"Authorization: Basic {credential}"
        return {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/nonexistent"),
            "LC_ALL": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ALLOW_PROTOCOL": remote.protocols(private=self.private_network),
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_CONFIG_COUNT": str(len(settings)),
            **{f"GIT_CONFIG_KEY_{index}": key for index, key in enumerate(settings)},
            **{f"GIT_CONFIG_VALUE_{index}": value for index, value in enumerate(settings.values())},
        }
