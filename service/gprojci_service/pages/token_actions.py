"""HTTP: the page of tokens, and what is done there: making one and revoking one.

It is for a session whose token has the highest scope there is: whoever makes tokens may do all that they may.
"""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from gprojci_service.access import rate_limits, sessions
from gprojci_service.access import service as access
from gprojci_service.access.schemas import TokenCreate
from gprojci_service.access.service import SessionDep
from gprojci_service.errors import Forbidden, InvalidRequest, Unauthorized
from gprojci_service.models.token import SCOPES
from gprojci_service.pages import token_list
from gprojci_service.pages.endpoints import JobId, Page, PageRoute, look_at_visitor, render
from gprojci_service.pages.writers import Form, Writer

LONGEST_DAYS = 3650
LONGEST_NAME = 100
router = APIRouter(route_class=PageRoute)


def _keeps(visitor: sessions.Visitor | None) -> None:
    if visitor is None or visitor.token is None:
        raise Unauthorized(f"sign in with a token of scope {SCOPES[-1]!r} first")
    if visitor.token.scope != SCOPES[-1]:
        raise Forbidden(f"this token has scope {visitor.token.scope!r}, tokens are kept with {SCOPES[-1]!r}")


def _keeper(request: Request, session: SessionDep) -> None:
    """FastAPI dependency: who looks may keep tokens.

    Raises:
        Unauthorized: nobody is signed in.
        Forbidden: the token's scope is not the highest.
    """
    _keeps(look_at_visitor(request, session))


def _keeping_writer(request: Request, visitor: Writer) -> None:
    """FastAPI dependency: whose form it is may keep tokens. Raises as `Writer` and `_keeper`."""
    _keeps(visitor)
    if request.url.path == "/tokens" and visitor.token is not None:
        rate_limits.of(request).count("new token", str(visitor.token.id))


@router.get("/tokens", dependencies=[Depends(_keeper, scope="function")])
def token_page(request: Request, session: SessionDep, page: Page = 1) -> Response:
    view = token_list.tokens(session, request.query_params, page)
    return render(request, "tokens.html", view=view, section="tokens")


@router.post("/tokens", dependencies=[Depends(_keeping_writer, scope="function")])
def create_token(request: Request, session: SessionDep, form: Form) -> Response:
    """The page with the new secret on it: a redirection would have to carry it."""
    wanted = _wanted(form)
    expires = timedelta(days=wanted.expires_in_days) if wanted.expires_in_days else None
    made = access.create_token(session, wanted.name, wanted.scope, expires_in=expires)
    session.flush()
    view = token_list.tokens(session, {}, 1, made)
    return render(request, "tokens.html", status=201, view=view, section="tokens")


def _wanted(form: dict[str, str]) -> TokenCreate:
    name, days = form.get("name", "").strip(), form.get("expires_in_days", "").strip()
    if not 0 < len(name) <= LONGEST_NAME:
        raise InvalidRequest(f"give it a name of at most {LONGEST_NAME} letters: who or what uses it", field="name")
    if form.get("scope") not in SCOPES:
        raise InvalidRequest(f"choose one of {', '.join(SCOPES)}", field="scope")
    if days and not (days.isascii() and days.isdecimal() and 1 <= int(days[:6]) <= LONGEST_DAYS):
        problem = f"give a number of days from 1 to {LONGEST_DAYS}, or leave it empty"
        raise InvalidRequest(problem, field="expires_in_days")
    return TokenCreate.model_validate(
        {"name": name, "scope": form["scope"], "expires_in_days": int(days) if days else None}
    )


@router.post("/tokens/{token_id}/revoke", dependencies=[Depends(_keeping_writer, scope="function")])
def revoke_token(session: SessionDep, token_id: JobId) -> Response:
    access.revoke_token(session, token_id)
    return RedirectResponse("/tokens", status_code=303)
