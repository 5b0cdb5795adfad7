"""The user's own checkout: which project it is of, which commit is meant, and what lies between two commits."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import httpx

from gprojci_service.client import call

GIT_SECONDS = 60
_FULL_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")


def full_sha(revision: str) -> str:
    """The full SHA of a revision; anything but a full SHA is looked up in the checkout here.

    Raises:
        click.UsageError: there is no such commit here.
    """
    if _FULL_SHA.fullmatch(revision):
        return revision
    found = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if not found:
        raise click.UsageError(
            f"{revision!r} is no commit of a git checkout here; run this inside the checkout or give the full SHA"
        )
    return found


def commit_or_prefix(revision: str) -> str:
    """A commit as the service is asked for it: as git resolves it here, else the beginning of a SHA as it was given.

    Raises:
        click.UsageError: it is neither.
    """
    try:
        return full_sha(revision)
    except click.UsageError:
        if re.fullmatch(r"[0-9a-fA-F]{4,64}", revision):
            return revision.lower()
        raise


def first_parent_range(good: str, bad: str) -> list[str]:
    """The commits after `good` up to and with `bad` along first parents, oldest first; full SHAs.

    Raises:
        click.UsageError: `good` does not lead to `bad` that way.
    """
    older, newer = full_sha(good), full_sha(bad)
    listed = _git("rev-list", "--first-parent", "--reverse", f"{older}..{newer}")
    if listed is None:
        raise click.UsageError(f"git knows no way from {good} to {bad} here; fetch both commits first")
    commits = listed.split()
    if not commits:
        raise click.UsageError(f"no commit lies between {good} and {bad}; the good one must be the older one")
    if _git("rev-parse", "--verify", "--quiet", f"{commits[0]}^1") != older:
        raise click.UsageError(
            f"{good} is not on the line of first parents of {bad}; "
            f"take their common ancestor there: git merge-base {good} {bad}"
        )
    return commits


def project_named(client: httpx.Client, name: str | None) -> str:
    """The full name of a project: the one named, else that of the checkout here, which the service must know.

    Raises:
        click.UsageError: none is named and the checkout is of no project of the service.
    """
    if name is not None:
        return name
    remote = _git("remote", "get-url", "origin")
    known: list[dict[str, Any]] = call(client, "GET", "/projects")
    if remote is not None:
        for project in known:
            if _address(remote) in {_address(project["clone_url"]), _address(project["html_url"] or "-")}:
                return str(project["name"])
    where = f"this checkout of {remote}" if remote else "the current directory"
    names = ", ".join(project["name"] for project in known[:5]) or "it has none yet: `gprojci project add OWNER/NAME`"
    raise click.UsageError(f"{where} is of no project of the service; name one as OWNER/NAME ({names})")


def _address(url: str) -> str:
    """Host and path of a clone address, the same for https, ssh, `git@host:path` and local directories."""
    short = re.fullmatch(r"(?:[^@/]+@)?([^:/]+):(?!//)(.+)", url)
    if short:
        host, path = short.groups()
    elif "://" in url:
        parts = urlsplit(url)
        host, path = parts.hostname or "", parts.path
    else:
        host, path = "", str(Path(url).resolve())
    return f"{host}/{path.strip('/').removesuffix('.git')}".lower()


def _git(*arguments: str) -> str | None:
    """What git prints in the current directory, or None where it fails or is not there."""
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, errors="replace", timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
