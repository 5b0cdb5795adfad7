"""Speaks to GitHub as a GitHub App: a signed JWT for the App, short-lived tokens for each of its installations.

Sources: GitHub's documentation, "Generating a JSON Web Token (JWT) for a GitHub App", "Generating an installation
access token for a GitHub App", and the REST reference of check runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import jwt

from gprojci_service.github import comments
from gprojci_service.github.outgoing import Answer, Outgoing
from gprojci_service.github.rest import Failure, Rest, pages

logger = logging.getLogger(__name__)

REPORTING = {"checks": "write", "statuses": "write"}
READING = {"contents": "read", "pull_requests": "read"}
COMMENTING = {"pull_requests": "write"}
PURPOSES = {"reporting": REPORTING, "reading": READING, "commenting": COMMENTING}
CLONING = {"contents": "read"}
# GitHub's clock may be behind ours by this; a JWT may last ten minutes at most.
CLOCK_SECONDS = 60
JWT_SECONDS = 540
# An installation token lasts an hour; one this close to its end is not used any more.
TOKEN_RESERVE = timedelta(minutes=5)
T = TypeVar("T")


@dataclass(frozen=True)
class InstallationToken:
    """A token of one installation."""

    secret: str
    expires_at: datetime

    @property
    def is_fresh(self) -> bool:
        return self.expires_at - datetime.now(UTC) > TOKEN_RESERVE


class AppClient:
    """A GitHub App. Installations are looked up by repository; they and their tokens are remembered.

    Every process remembers its own. Threads may ask at once: at worst one token more is made.
    """

    def __init__(self, api_url: str, app_id: str, private_key: str, timeout_seconds: float) -> None:
        self.rest = Rest(api_url, timeout_seconds)
        self.app_id = app_id
        self.private_key = private_key
        self._installations: dict[str, int] = {}
        self._tokens: dict[tuple[int, str], InstallationToken] = {}

    def send(self, report: Outgoing) -> Answer:
        """Sets a status; creates the job's check run or our comment, or changes the one that is there; reacts."""
        try:
            if report.kind == "commit_status":
                self._ask(report.repository, "POST", report.path, body=report.payload)
                return Answer("sent", "status set")
            if report.kind == "check_run":
                return self._send_check_run(report)
            return comments.send(report, partial(self._comment, report.repository), partial(self._find_comment, report))
        except Failure as failure:
            return failure.answer

    def get(self, path: str) -> Any:
        """The JSON of a path below `/repos/{owner}/{repo}/`, as that repository's installation."""
        repository = "/".join(path.split("/")[2:4])
        return self._as_installed(
            repository,
            "reading",
            lambda holder, secret: self.rest.read(path, holder=holder, authorization=secret),
        )

    def clone_token(self, repository: str) -> str | None:
        """A new token that reads this one repository for an hour; None, with a warning, where GitHub gives none."""
        try:
            installation = self._installation(repository)
            body = {"repositories": [repository.partition("/")[2]], "permissions": CLONING}
            return self._new_token(installation, body).secret
        except Failure as failure:
            self._forget(repository)
            logger.warning("no clone token for %s: %s", repository, failure.answer.detail)
            return None

    def identity(self) -> tuple[str, dict[str, str] | None]:
        """The App's name and what it may, as GitHub knows it."""
        found = self._ask_as_app("GET", "/app")
        return f"GitHub App {_read(found, 'slug', str)}", dict(_read(found, "permissions", dict))

    def _send_check_run(self, report: Outgoing) -> Answer:
        number = report.check_run_id
        if number is None and report.may_exist:
            number = self._find_check_run(report)
        if number is None:
            created = self._ask(report.repository, "POST", report.path, body=report.payload)
            number = int(_read(created, "id", int))
            return Answer("sent", f"check run {number} created", check_run_id=number)
        changes = {key: value for key, value in report.payload.items() if key != "head_sha"}
        self._ask(report.repository, "PATCH", f"{report.path}/{number}", body=changes)
        return Answer("sent", f"check run {number} updated", check_run_id=number)

    def _find_check_run(self, report: Outgoing) -> int | None:
        """The check run that an earlier request created although its answer was lost."""
        listed = self._ask(
            report.repository,
            "GET",
            f"/repos/{report.repository}/commits/{report.payload['head_sha']}/check-runs",
            query={"check_name": report.payload["name"], "filter": "all", "per_page": 100},
        )
        for run in _read(listed, "check_runs", list):
            if self._is_us(run.get("app")) and run.get("external_id") == report.payload["external_id"]:
                return int(_read(run, "id", int))
        return None

    def _is_us(self, app: dict[str, Any] | None) -> bool:
        return app is not None and self.app_id in (str(app.get("id")), app.get("client_id"))

    def _comment(self, repository: str, method: str, path: str, body: Any) -> dict[str, Any]:
        return self._ask(repository, method, path, body=body, purpose="commenting")

    def _find_comment(self, report: Outgoing) -> int | None:
        """The comment that an earlier request made although its answer was lost."""
        for comment in pages(self.get, report.path):
            if self._is_us(comment.get("performed_via_github_app")) and comments.MARK in (comment.get("body") or ""):
                return int(_read(comment, "id", int))
        return None

    def _ask(
        self,
        repository: str,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Any = None,
        purpose: str = "reporting",
    ) -> dict[str, Any]:
        """A request as the repository's installation."""
        return self._as_installed(
            repository,
            purpose,
            lambda holder, secret: self.rest.request(
                method, path, holder=holder, authorization=secret, body=body, query=query
            ),
        )

    def _as_installed(self, repository: str, purpose: str, ask: Callable[[str, str], T]) -> T:
        """Asks with the holder of the rate limit and the token of the repository's installation.

        Where what was remembered is refused (a token revoked before its end, the App installed anew), it is forgotten
        and asked once more.
        """
        remembered = repository in self._installations
        try:
            return self._ask_once(repository, purpose, ask)
        except Failure as failure:
            if not remembered or failure.status not in (401, 404):
                raise
        self._forget(repository)
        return self._ask_once(repository, purpose, ask)

    def _forget(self, repository: str) -> None:
        installation = self._installations.pop(repository, None)
        if installation is not None:
            for key in [key for key in self._tokens if key[0] == installation]:
                self._tokens.pop(key, None)

    def _ask_once(self, repository: str, purpose: str, ask: Callable[[str, str], T]) -> T:
        installation = self._installation(repository)
        return ask(f"installation {installation}", self._token(installation, purpose).secret)

    def _token(self, installation: int, purpose: str) -> InstallationToken:
        token = self._tokens.get((installation, purpose))
        if token is None or not token.is_fresh:
            token = self._new_token(installation, {"permissions": PURPOSES[purpose]})
            self._tokens[installation, purpose] = token
        return token

    def _installation(self, repository: str) -> int:
        known = self._installations.get(repository)
        if known is not None:
            return known
        try:
            found = self._ask_as_app("GET", f"/repos/{repository}/installation")
        except Failure as failure:
            if failure.status == 404:
                reason = f"the GitHub App is not installed on {repository}; install it there and run the job again"
                raise Failure(Answer("refused", reason), 404) from failure
            raise
        number = self._installations[repository] = int(_read(found, "id", int))
        return number

    def _new_token(self, installation: int, body: dict[str, Any]) -> InstallationToken:
        made = self._ask_as_app("POST", f"/app/installations/{installation}/access_tokens", body)
        try:
            expires_at = datetime.fromisoformat(_read(made, "expires_at", str)).astimezone(UTC)
        except ValueError as error:
            raise _not_githubs("expires_at") from error
        return InstallationToken(_read(made, "token", str), expires_at)

    def _ask_as_app(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        moment = int(time.time())
        claims = {"iat": moment - CLOCK_SECONDS, "exp": moment + JWT_SECONDS, "iss": self.app_id}
        signed = jwt.encode(claims, self.private_key, algorithm="RS256")
        return self.rest.request(method, path, holder="app", authorization=signed, body=body)


def _read(answer: dict[str, Any], key: str, kind: type) -> Any:
    value = answer.get(key)
    if not isinstance(value, kind):
        raise _not_githubs(key)
    return value


def _not_githubs(key: str) -> Failure:
    return Failure(
        Answer("again", f"the answer has no usable {key!r}; is GPROJCI_GITHUB_API_URL that of GitHub's REST API?")
    )
