"""Sends reports to GitHub's REST API and says what became of them; reads from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import httpx

from gprojci_service.settings import Settings


@dataclass(frozen=True)
class Answer:
    """What became of a report: sent; recorded (kept here only); again (a passing fault); refused (final)."""

    outcome: Literal["sent", "recorded", "again", "refused"]
    detail: str


class Unanswered(Exception):
    """GitHub gave no answer that can be used; the words say why."""


class GitHub(Protocol):
    """Takes reports, and is asked what happened."""

    def post(self, kind: str, path: str, payload: dict[str, Any]) -> Answer: ...

    def get(self, path: str) -> Any:
        """The JSON below the API's base URL.

        Raises:
            Unanswered: there is none.
        """
        ...


class Recorder:
    """Stands where no credentials are set: keeps every report in the outbox and says so."""

    def post(self, kind: str, path: str, payload: dict[str, Any]) -> Answer:
        return Answer("recorded", "recorded, not sent: no GitHub credentials are set (GPROJCI_GITHUB_TOKEN)")

    def get(self, path: str) -> Any:
        raise Unanswered(f"{path} was not asked for: no GitHub credentials are set (GPROJCI_GITHUB_TOKEN)")


class TokenClient:
    """Speaks to GitHub with a personal token, which may set statuses but create no check runs."""

    def __init__(self, api_url: str, token: str) -> None:
        self.api_url = api_url
        self.headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "gprojci",
        }

    def post(self, kind: str, path: str, payload: dict[str, Any]) -> Answer:
        if kind == "check_run":
            return Answer(
                "recorded", "recorded, not sent: only a GitHub App may create check runs, and a personal token is set"
            )
        try:
            response = httpx.post(self.api_url + path, json=payload, headers=self.headers, timeout=15)
        except httpx.HTTPError as error:
            return Answer("again", f"{type(error).__name__}: {error}")
        if response.is_success:
            return Answer("sent", f"HTTP {response.status_code}")
        passing = response.status_code >= 500 or response.status_code == 429 or "retry-after" in response.headers
        passing = passing or response.headers.get("x-ratelimit-remaining") == "0"
        return Answer("again" if passing else "refused", f"HTTP {response.status_code}: {response.text[:500]}")

    def get(self, path: str) -> Any:
        try:  # a renamed repository is answered with where it is now
            response = httpx.get(self.api_url + path, headers=self.headers, timeout=15, follow_redirects=True)
        except httpx.HTTPError as error:
            raise Unanswered(f"{path}: {type(error).__name__}: {error}") from error
        if not response.is_success:
            raise Unanswered(f"{path}: HTTP {response.status_code}: {response.text[:500]}")
        try:
            return response.json()
        except ValueError as error:
            raise Unanswered(f"{path}: the answer is not JSON") from error


def connect(settings: Settings) -> GitHub:
    """The client that the settings have credentials for."""
    if settings.github_token is None:
        return Recorder()
    return TokenClient(settings.github_api_url, settings.github_token.get_secret_value())
