"""Asks GitHub, before an approved commit is built, whether the pull request is still at it.

Source: GitHub's REST documentation, "Get a pull request".
"""

from __future__ import annotations

import logging
from urllib.parse import quote

from pydantic import BaseModel

from gprojci_service.github.client import GitHub, Recorder, read
from gprojci_service.github.rest import Failure

logger = logging.getLogger(__name__)


class _Head(BaseModel):
    sha: str


class _PullRequest(BaseModel):
    head: _Head


def moved(github: GitHub, repository: str, number: int, head_sha: str) -> str:
    """Why the approval of a commit does not carry any more; empty where it does.

    Where GitHub cannot be asked it carries: whatever was pushed since, the commit that is built is the approved one.
    """
    if isinstance(github, Recorder):
        return ""
    try:
        asked = read(github, f"/repos/{quote(repository)}/pulls/{number}", _PullRequest)
    except Failure as error:
        logger.warning("pull request %d of %s is not looked at before its build: %s", number, repository, error)
        return ""
    if asked.head.sha == head_sha:
        return ""
    return f"pull request {number} is at commit {asked.head.sha[:10]} now: the approval was of {head_sha[:10]}"
