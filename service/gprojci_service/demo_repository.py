"""The demo's repository: this project's own `gproj` package in a small git history, and GitHub's webhooks about it."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gprojci_service.errors import ConfigurationError

NAME = "example/gproj"
REPOSITORY_ID = 1
TILES = "kernels/gproj/gproj/tiles.py"
PROJECTED = "kernels/gproj/gproj/projected.py"
COMPILED = "kernels/gproj/gproj/triton/backward_dq.py"
ROWS, FEWER_ROWS = "\nROWS = 256\n", "\nROWS = 128\n"
UNPROJECTED = "        dq_rows = ds @ k_seen\n"
# What the pull request changes: file, text with the projection, text without it. A CPU runs the first.
PROJECTIONS = (
    (PROJECTED, UNPROJECTED + "        dq_rows = project_to_zero_row_sum(dq_rows, ds, p, k_seen)\n", UNPROJECTED),
    (
        COMPILED,
        "        acc = project_to_zero_row_sum(acc, row_sums(row_sum), pk, row_sums(p_sum))\n",
        "        pass\n",
    ),
)
AUTHORS = {"ada": "Ada Beispiel", "ben": "Ben Exempel"}


class DemoRepository:
    """A git repository with four commits: a first one, a good one, and a pull request that errs and mends its error."""

    def __init__(self, directory: Path, source: Path) -> None:
        self.directory = directory
        self.source = source
        self.clone_url = directory.resolve().as_uri()

    def create(self) -> None:
        """Makes it anew from the `gproj` package and manifest of `source`, with its first and its good commit.

        Raises:
            ConfigurationError: `source` is not a checkout of this project, or git is missing.
        """
        if not (self.source / PROJECTED).is_file() or not (self.source / "gprojci.toml").is_file():
            raise ConfigurationError(
                f"{self.source} is not a checkout of GProj CI; run the demo there, or name one with --source"
            )
        if shutil.which("git") is None:
            raise ConfigurationError("git is not installed; the demo commits and clones with it")
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self._git("init", "--quiet", "--initial-branch", "main")
        shutil.copy(self.source / "gprojci.toml", self.directory)
        shutil.copytree(
            self.source / "kernels" / "gproj",
            self.directory / "kernels" / "gproj",
            ignore=shutil.ignore_patterns("__pycache__", "tests", "*.egg-info"),
        )
        self._edit(TILES, ROWS, FEWER_ROWS)
        self._commit(
            "ada",
            "Attention whose dQ keeps its zero row sums\n\nGProj and zero-sum attention: plain PyTorch, Triton.",
        )
        self._edit(TILES, FEWER_ROWS, ROWS)
        self._commit("ada", "Tiles of 256 query rows\n\nHalf as many passes over the keys for the same result.")

    def skip_projection(self) -> None:
        """The pull request's first commit: faster, and wrong."""
        self._git("switch", "--quiet", "--create", "skip-projection")
        for path, projected, unprojected in PROJECTIONS:
            self._edit(path, projected, unprojected)
        self._commit("ben", "Skip the projection in the backward\n\nSaves a matrix product. The loss looks the same.")

    def restore_projection(self) -> None:
        """The pull request's second commit mends it."""
        for path, projected, unprojected in PROJECTIONS:
            self._edit(path, unprojected, projected)
        self._commit("ben", "Restore the projection\n\nWithout it a common offset of the keys leaks into dQ.")

    def sha(self, revision: str) -> str:
        """Full SHA of a revision."""
        return self._git("rev-parse", "--verify", revision + "^{commit}").strip()

    def push_payload(self) -> dict[str, Any]:
        """GitHub's `push` event for the newest commit of main."""
        head = self._commit_payload(self.sha("main"))
        return {
            "ref": "refs/heads/main",
            "before": self.sha("main^"),
            "after": head["id"],
            "created": False,
            "deleted": False,
            "forced": False,
            "base_ref": None,
            "compare": f"{self.clone_url}/compare/{self.sha('main^')[:12]}...{head['id'][:12]}",
            "commits": [head],
            "head_commit": head,
            "repository": self._repository_payload(),
            "pusher": {"name": "ada", "email": "ada@example.com"},
            "sender": _user("ada"),
        }

    def pull_request_payload(self, action: str) -> dict[str, Any]:
        """GitHub's `pull_request` event for the branch `skip-projection`."""
        branch = {"label": "example:skip-projection", "ref": "skip-projection", "sha": self.sha("skip-projection")}
        base = {"label": "example:main", "ref": "main", "sha": self.sha("main")}
        repository = self._repository_payload()
        return {
            "action": action,
            "number": 1,
            "repository": repository,
            "sender": _user("ben"),
            "pull_request": {
                "id": 1,
                "number": 1,
                "state": "open",
                "locked": False,
                "title": "Faster backward: skip the projection",
                "body": "One matrix product less.",
                "user": _user("ben"),
                "draft": False,
                "merged": False,
                "html_url": f"{self.clone_url}/pull/1",
                "created_at": _now(),
                "updated_at": _now(),
                "author_association": "CONTRIBUTOR",
                "head": {**branch, "user": _user("example"), "repo": repository},
                "base": {**base, "user": _user("example"), "repo": repository},
            },
        }

    def ping_payload(self) -> dict[str, Any]:
        """GitHub's `ping` event."""
        return {
            "zen": "Measure, never assume.",
            "hook_id": 1,
            "repository": self._repository_payload(),
            "sender": _user("ada"),
            "hook": {"type": "Repository", "id": 1, "active": True, "events": ["push", "pull_request"]},
        }

    def _repository_payload(self) -> dict[str, Any]:
        return {
            "id": REPOSITORY_ID,
            "name": "gproj",
            "full_name": NAME,
            "private": False,
            "owner": _user("example"),
            "html_url": self.clone_url,
            "clone_url": self.clone_url,
            "default_branch": "main",
            "fork": False,
        }

    def _commit_payload(self, sha: str) -> dict[str, Any]:
        name, email, date, message = self._git("show", "-s", "--format=%an%n%ae%n%aI%n%B", sha).split("\n", 3)
        author = {"name": name, "email": email, "username": name.split()[0].lower()}
        return {
            "id": sha,
            "tree_id": self.sha_of_tree(sha),
            "distinct": True,
            "message": message.strip(),
            "timestamp": date,
            "url": f"{self.clone_url}/commit/{sha}",
            "author": author,
            "committer": author,
            "added": [],
            "removed": [],
            "modified": [TILES],
        }

    def sha_of_tree(self, sha: str) -> str:
        """SHA of a commit's tree."""
        return self._git("rev-parse", f"{sha}^{{tree}}").strip()

    def _edit(self, file: str, old: str, new: str) -> None:
        path = self.directory / file
        text = path.read_text()
        if text.count(old) != 1:
            raise ConfigurationError(f"{file} no longer has the one place {old.strip()!r} that the demo edits")
        path.write_text(text.replace(old, new))

    def _commit(self, who: str, message: str) -> None:
        self._git("add", "--all")
        self._git("commit", "--quiet", "--no-gpg-sign", "-m", message, author=who)

    def _git(self, *arguments: str, author: str = "ada") -> str:
        name, email = AUTHORS[author], f"{author}@example.com"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": name,
            "GIT_AUTHOR_EMAIL": email,
            "GIT_COMMITTER_NAME": name,
            "GIT_COMMITTER_EMAIL": email,
        }
        done = subprocess.run(
            ["git", *arguments], cwd=self.directory, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ConfigurationError(f"git {arguments[0]}: {done.stderr.strip()}")
        return done.stdout


def _user(login: str) -> dict[str, Any]:
    return {"login": login, "id": 1 + sum(login.encode()), "type": "User"}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
