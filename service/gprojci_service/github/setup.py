"""The set-up of a GitHub App by its manifest: what GitHub is asked to create, who may ask, and what comes back, once.

Sources: GitHub's documentation, "Registering a GitHub App from a manifest"; its REST reference, "Create a GitHub App
from a manifest".
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import jwt

from gprojci_service.errors import Conflict, Forbidden, InvalidRequest, ServiceError
from gprojci_service.github.client import TIMEOUT_SECONDS
from gprojci_service.github.rest import Failure, Rest
from gprojci_service.settings import Settings

PERMISSIONS = {
    "checks": "write",
    "contents": "read",
    "merge_queues": "read",
    "metadata": "read",
    "pull_requests": "write",
    "statuses": "write",
}
EVENTS = ("push", "pull_request", "merge_group", "check_run", "check_suite", "repository", "issue_comment")
"""Those of installations come without being asked for."""
VALID_FOR = timedelta(hours=1)
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class AppConfigured(Conflict):
    """A GitHub App reports already."""


class GitHubRefused(ServiceError):
    """GitHub did not hand out the App's credentials."""

    status = 502


@dataclass(frozen=True)
class Credentials:
    """What GitHub says of a new App, this once."""

    app_id: int
    name: str
    html_url: str
    pem: str
    webhook_secret: str


def address(settings: Settings, organization: str | None) -> str:
    """Where the operator begins: the page of the set-up with a key that is valid for an hour.

    Raises:
        AppConfigured: there is an App.
        InvalidRequest: the private key would be shown over plain HTTP.
    """
    _must_be_open(settings)
    key = _sign(settings, "key", {"organization": organization})
    return f"{settings.public_url}/github/setup?{urlencode({'key': key})}"


def begin(settings: Settings, key: str) -> tuple[str, str, str]:
    """For a right key: where the manifest is posted to, the manifest, and the nonce that the browser keeps as a cookie.

    Raises:
        Forbidden: the key is wrong or too old.
        AppConfigured, InvalidRequest: as `address`.
    """
    _must_be_open(settings)
    organization = _verified(settings, "key", key)["organization"]
    nonce = secrets.token_urlsafe(16)
    account = f"/organizations/{quote(organization, safe='')}" if organization else ""
    state = urlencode({"state": _sign(settings, "state", {"nonce": nonce})})
    return f"{web_url(settings)}{account}/settings/apps/new?{state}", json.dumps(manifest(settings)), nonce


def finish(settings: Settings, code: str, state: str, nonce: str | None) -> Credentials:
    """The credentials of the App that GitHub has created; its code is good once.

    Raises:
        Forbidden: the state is not that of the browser that began, or too old.
        GitHubRefused: the code is wrong or was used, or GitHub does not answer.
        AppConfigured, InvalidRequest: as `address`.
    """
    _must_be_open(settings)
    if nonce is None or not hmac.compare_digest(str(_verified(settings, "state", state)["nonce"]), nonce):
        raise Forbidden("this answer of GitHub belongs to another browser; begin anew with `gprojci github setup`")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", code):
        raise InvalidRequest("code: not as GitHub gives it")
    try:
        made = Rest(settings.github_api_url, TIMEOUT_SECONDS).request(
            "POST", f"/app-manifests/{code}/conversions", holder="setup", authorization=None
        )
        return Credentials(
            int(made["id"]), str(made["name"]), str(made["html_url"]), str(made["pem"]), str(made["webhook_secret"])
        )
    except Failure as failure:
        raise GitHubRefused(
            f"GitHub gave no credentials ({failure}); begin anew with `gprojci github setup`"
        ) from failure
    except (KeyError, ValueError) as error:
        raise GitHubRefused(f"GitHub's answer lacks {error}; is GPROJCI_GITHUB_API_URL that of its API?") from error


def manifest(settings: Settings) -> dict[str, Any]:
    """The App as GitHub is asked to create it; it makes the key and the webhook secret itself."""
    return {
        "name": "GProj CI",
        "url": settings.public_url,
        "description": "Accuracy and speed of attention kernels at every commit.",
        "hook_attributes": {"url": f"{settings.public_url}/webhooks/github", "active": True},
        "redirect_url": f"{settings.public_url}/github/setup/done",
        "public": False,
        "default_permissions": PERMISSIONS,
        "default_events": list(EVENTS),
    }


def web_url(settings: Settings) -> str:
    """GitHub's pages: https://github.com, or the Enterprise host whose API is set."""
    if settings.github_api_url == "https://api.github.com":
        return "https://github.com"
    return settings.github_api_url.removesuffix("/api/v3")


def _must_be_open(settings: Settings) -> None:
    if settings.github_app_id is not None:
        raise AppConfigured("a GitHub App is set (GPROJCI_GITHUB_APP_ID); remove it to set up another one")
    public = urlsplit(settings.public_url)
    if public.scheme != "https" and public.hostname not in LOOPBACK:
        raise InvalidRequest(
            f"GPROJCI_PUBLIC_URL is {settings.public_url}: the App's key is shown over https alone, or on this machine"
        )


def _sign(settings: Settings, purpose: str, claims: dict[str, Any]) -> str:
    expires = datetime.now(UTC) + VALID_FOR
    return jwt.encode({**claims, "aud": f"github-setup-{purpose}", "exp": expires}, _secret(settings), "HS256")


def _verified(settings: Settings, purpose: str, signed: str) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = jwt.decode(
            signed,
            _secret(settings),
            ["HS256"],
            audience=f"github-setup-{purpose}",
            options={"require": ["exp", "aud"]},
        )
    except jwt.InvalidTokenError as error:
        raise Forbidden(
            f"this address is not valid, or older than an hour ({error}); `gprojci github setup` prints a new one"
        ) from error
    return claims


def _secret(settings: Settings) -> bytes:
    return settings.keys("gprojci github setup")[0]
