"""People: who signs in with GitHub, and what somebody may do in a repository.

Sources: GitHub's documentation, "Authorizing OAuth apps" and "Generating a user access token for a GitHub App" (web
flow with state and PKCE); its REST reference, "Get the authenticated user", "Get repository permissions for a user".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import quote, urlencode

import httpx
import jwt
from pydantic import BaseModel

from gprojci_service.errors import Forbidden, NotFound, ServiceError
from gprojci_service.github.client import TIMEOUT_SECONDS, GitHub, read
from gprojci_service.github.rest import Failure, Rest
from gprojci_service.github.setup import web_url
from gprojci_service.models import now
from gprojci_service.settings import Settings

VALID_FOR = timedelta(minutes=10)
"""How long somebody may look at GitHub's page; its code lasts as long."""
Role = Literal["reader", "maintainer", "admin"]
ROLES: dict[str, Role] = {"read": "reader", "write": "maintainer", "admin": "admin"}
"""By GitHub's `permission`."""
_AUDIENCE = "sign-in with GitHub"


class NoSignInWithGitHub(NotFound):
    """GitHub is not asked who somebody is."""


class GitHubSilent(ServiceError):
    """GitHub did not say who somebody is, or what they may do."""

    status = 502


@dataclass(frozen=True)
class Account:
    """Who GitHub says it is, and where they wanted to go."""

    github_id: int
    login: str
    address: str


class _User(BaseModel):
    id: int
    login: str


class Permission(BaseModel):
    """What an account may do in a repository, and whose it is."""

    permission: str
    """read, write, admin or none: `triage` is read, `maintain` is write, custom roles are what they stand on."""
    user: _User | None = None


def begin(settings: Settings, address: str) -> tuple[str, str]:
    """Where the browser is sent, and the cookie by which its return is known.

    Raises:
        NoSignInWithGitHub: no client is set.
    """
    client, _ = _client(settings)
    state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
    claims = {"aud": _AUDIENCE, "exp": now() + VALID_FOR, "state": state, "verifier": verifier, "address": address}
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {"client_id": client, "redirect_uri": _return_address(settings), "state": state, "allow_signup": "false"}
    asked |= {"code_challenge": challenge, "code_challenge_method": "S256"}
    return f"{web_url(settings)}/login/oauth/authorize?{urlencode(asked)}", jwt.encode(claims, _key(settings), "HS256")


def finish(settings: Settings, code: str, state: str, cookie: str | None) -> Account:
    """Who has come back from GitHub. The credential that says it is used once and kept nowhere.

    Raises:
        Forbidden: it is not the browser that was sent there, or too late, or the code is not GitHub's.
        GitHubSilent: GitHub does not answer, or not as it documents.
        NoSignInWithGitHub: no client is set.
    """
    client, secret = _client(settings)
    options: Any = {"require": ["aud", "exp", "state", "verifier", "address"]}
    try:
        begun = jwt.decode(cookie or "", _key(settings), ["HS256"], audience=_AUDIENCE, options=options)
    except jwt.InvalidTokenError as error:
        raise Forbidden("this sign-in was begun elsewhere, or too long ago; begin it anew") from error
    if not hmac.compare_digest(str(begun["state"]).encode(), state.encode()):
        raise Forbidden("this answer of GitHub belongs to another sign-in; begin it anew")
    fields = {"client_id": client, "client_secret": secret, "code": code, "code_verifier": begun["verifier"]}
    fields["redirect_uri"] = _return_address(settings)
    token = _exchange(f"{web_url(settings)}/login/oauth/access_token", fields)
    try:
        found = Rest(settings.github_api_url, TIMEOUT_SECONDS).request(
            "GET", "/user", holder="sign-in", authorization=token
        )
        user = _User.model_validate(found)
    except (Failure, ValueError) as error:
        raise GitHubSilent(f"GitHub does not say who signs in ({error}); try again") from error
    return Account(user.id, user.login, str(begun["address"]))


def role(github: GitHub, project: str, github_id: int, login: str) -> Role | None:
    """What an account may do in a repository, as GitHub says now; None where it is nothing to it.

    Raises:
        GitHubSilent: GitHub does not answer, or does not let itself be asked.
    """
    try:
        found = permission(github, project, login)
    except Failure as failure:
        raise GitHubSilent(f"GitHub does not say what you may do in {project} ({failure}); try again") from failure
    if found is None or found.user is None or found.user.id != github_id:  # somebody else has the name by now
        return None
    return ROLES.get(found.permission)


def permission(github: GitHub, project: str, login: str) -> Permission | None:
    """What GitHub says that whoever is called so may do in a repository; None where nobody is.

    Raises:
        Failure: GitHub does not answer, or does not let itself be asked.
    """
    try:
        return read(github, f"/repos/{quote(project)}/collaborators/{quote(login, safe='')}/permission", Permission)
    except Failure as failure:
        if failure.status == 404:
            return None
        raise


def _exchange(address: str, fields: dict[str, Any]) -> str:
    try:
        answer = httpx.post(
            address,
            data=fields,
            headers={"Accept": "application/json"},
            timeout=TIMEOUT_SECONDS,
            follow_redirects=False,
        )
        found = answer.json() if answer.is_success else {}
    except (httpx.HTTPError, ValueError) as error:
        raise GitHubSilent(f"GitHub does not answer ({type(error).__name__}); try again") from error
    if not answer.is_success or not isinstance(found, dict):
        raise GitHubSilent(f"GitHub answers with HTTP {answer.status_code}; try again")
    token = found.get("access_token")
    if not isinstance(token, str):
        raise Forbidden(f"GitHub does not take the code ({str(found.get('error'))[:100]}); begin the sign-in anew")
    return token


def _client(settings: Settings) -> tuple[str, str]:
    if settings.github_client_id is None or settings.github_client_secret is None:
        raise NoSignInWithGitHub("sign-in with GitHub is not set up (GPROJCI_GITHUB_CLIENT_ID); use a token")
    return settings.github_client_id, settings.github_client_secret.get_secret_value()


def _return_address(settings: Settings) -> str:
    return f"{settings.public_url}/sign-in/github/done"


def _key(settings: Settings) -> bytes:
    return settings.keys("gprojci: sign-in with GitHub")[0]
