"""Who speaks to GitHub: an App, a personal token, or nobody where no credentials are set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from gprojci_service.github import comments
from gprojci_service.github.app import AppClient
from gprojci_service.github.outgoing import Answer, Outgoing
from gprojci_service.github.rest import Failure, Rest
from gprojci_service.settings import Settings

TIMEOUT_SECONDS = 15.0
T = TypeVar("T")


class GitHub(Protocol):
    """Takes reports, is asked what happened, and gives workers what they clone private repositories with."""

    def send(self, report: Outgoing) -> Answer: ...

    def get(self, path: str) -> Any:
        """The JSON of a path below `/repos/{owner}/{repo}/`.

        Raises:
            Failure: there is none.
        """
        ...

    def clone_token(self, repository: str) -> str | None: ...

    def identity(self) -> tuple[str, dict[str, str] | None]:
        """Who GitHub takes us for, empty where no credentials are set, and an App's permissions.

        Raises:
            Failure: GitHub does not answer, or does not know us.
        """
        ...


class Recorder:
    """Stands where no credentials are set: keeps every report in the outbox and says so."""

    def send(self, report: Outgoing) -> Answer:
        return Answer(
            "recorded",
            "recorded, not sent: no GitHub credentials are set (GPROJCI_GITHUB_APP_ID, GPROJCI_GITHUB_TOKEN)",
        )

    def get(self, path: str) -> Any:
        raise Failure(
            Answer("refused", "not asked: no GitHub credentials are set (GPROJCI_GITHUB_APP_ID, GPROJCI_GITHUB_TOKEN)")
        )

    def clone_token(self, repository: str) -> str | None:
        return None

    def identity(self) -> tuple[str, dict[str, str] | None]:
        return "", None


class TokenClient:
    """Speaks to GitHub with a personal token, which may set statuses and comment but create no check runs."""

    def __init__(self, api_url: str, token: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.rest = Rest(api_url, timeout_seconds)
        self.token = token

    def send(self, report: Outgoing) -> Answer:
        if report.kind == "check_run":
            return Answer(
                "recorded", "recorded, not sent: only a GitHub App may create check runs, and a personal token is set"
            )
        try:
            if report.kind != "commit_status":
                # Whose the token is it does not know, so after a lost answer it makes a second comment.
                return comments.send(report, self._ask, lambda: None)
            self._ask("POST", report.path, report.payload)
        except Failure as failure:
            return failure.answer
        return Answer("sent", "status set")

    def _ask(self, method: str, path: str, body: Any) -> dict[str, Any]:
        return self.rest.request(method, path, holder="token", authorization=self.token, body=body)

    def get(self, path: str) -> Any:
        return self.rest.read(path, holder="token", authorization=self.token)

    def clone_token(self, repository: str) -> str | None:
        return self.token

    def identity(self) -> tuple[str, dict[str, str] | None]:
        return f"user {self._ask('GET', '/user', None).get('login')}", None


def connect(settings: Settings) -> GitHub:
    """The client that the settings have credentials for; it contacts nobody before it is used."""
    if settings.github_app_id is not None and settings.github_app_key_file is not None:
        key = settings.github_app_key_file.read_text()
        return AppClient(settings.github_api_url, settings.github_app_id, key, TIMEOUT_SECONDS)
    if settings.github_token is not None:
        return TokenClient(settings.github_api_url, settings.github_token.get_secret_value())
    return Recorder()


def read(github: GitHub, path: str, shape: type[T]) -> T:
    """What GitHub says below `/repos/{owner}/{repo}/`, in the shape that it documents.

    Raises:
        Failure: GitHub does not answer, or not as it documents; it names the path.
    """
    try:
        return TypeAdapter(shape).validate_python(github.get(path))
    except Failure as failure:
        raise Failure(replace(failure.answer, detail=f"{path}: {failure}"), failure.status) from failure
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = f"{path}: {where}: {first['msg']}; is GPROJCI_GITHUB_API_URL that of GitHub's API?"
        raise Failure(Answer("again", reason)) from error
