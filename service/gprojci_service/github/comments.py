"""Sends what is said about a pull request: our one comment, and reactions to those of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gprojci_service.github.outgoing import Answer, Outgoing
from gprojci_service.github.rest import Failure

MARK = "<!-- gprojci: the one comment of ours, kept up to date -->"

Ask = Callable[[str, str, Any], dict[str, Any]]
"""Method, path and body to the JSON object of a success; raises Failure."""


def send(report: Outgoing, ask: Ask, find: Callable[[], int | None]) -> Answer:
    """Adds a reaction; makes the comment, or changes the one that is there. One that was deleted is made anew.

    Args:
        find: looks for the comment that an earlier request made although its answer was lost.

    Raises:
        Failure: GitHub did not answer or did not agree.
    """
    if report.kind == "reaction":
        ask("POST", report.path, report.payload)
        return Answer("sent", "reaction added")
    number = report.comment_id
    if number is None and report.may_exist:
        number = find()
    if number is not None:
        try:
            ask("PATCH", f"/repos/{report.repository}/issues/comments/{number}", report.payload)
            return Answer("sent", f"comment {number} updated", comment_id=number)
        except Failure as failure:
            if failure.status not in (404, 410):
                raise
    made = ask("POST", report.path, report.payload).get("id")
    if not isinstance(made, int):
        raise Failure(Answer("again", "the answer has no usable 'id'; is GPROJCI_GITHUB_API_URL that of GitHub's API?"))
    return Answer("sent", f"comment {made} created", comment_id=made)
