"""HTTP: signing in with GitHub: there and back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Cookie, Query, Request, Response
from fastapi.responses import RedirectResponse

from gprojci_service.access import audit, people, rate_limits, repository, sessions
from gprojci_service.github import people as github
from gprojci_service.pages.endpoints import PageRoute, own_address, render, set_session

router = APIRouter(prefix="/sign-in/github", route_class=PageRoute)
COOKIE = "gprojci_github_sign_in"
_PATH = "/sign-in/github"


@router.get("")
def begin(request: Request, address: Annotated[str, Query(alias="next")] = "/") -> Response:
    rate_limits.of(request).count("sign-in with GitHub", rate_limits.client_of(request))
    settings = request.app.state.settings
    target, cookie = github.begin(settings, own_address(address))
    answer = RedirectResponse(target, status_code=303, headers={"Cache-Control": "no-store"})
    secure = settings.public_url.startswith("https://")
    # Lax: the way back begins on GitHub's page.
    lifetime = int(github.VALID_FOR.total_seconds())
    answer.set_cookie(COOKIE, cookie, max_age=lifetime, path=_PATH, httponly=True, samesite="lax", secure=secure)
    return answer


@router.get("/done")
def done(
    request: Request,
    state: str,
    code: str = "",
    error: str = "",
    kept: Annotated[str | None, Cookie(alias=COOKIE)] = None,
) -> Response:
    rate_limits.of(request).count("sign-in with GitHub", rate_limits.client_of(request))
    settings, database = request.app.state.settings, request.app.state.database
    account = github.finish(settings, code or f"none: {error}", state, kept)
    if not settings.public_read:
        with database.session(writes=False) as session:
            projects = repository.names_and_privacy(session)
        people.check_may_read(request.app.state.context.github, projects, account)
    with database.session(writes=True) as session:
        person = people.admit(session, account)
        audit.record(
            session,
            audit.Actor(person.login, "session"),
            "sign_in_with_github",
            {"github_id": person.github_id},
            address=rate_limits.client_of(request),
        )
        cookie, request.state.visitor = sessions.start(settings, None, person)
    # A page, not a redirect: a browser that comes from GitHub would follow that without the new cookie (SameSite).
    answer = render(request, "signed_in.html", address=own_address(account.address), login=person.login)
    set_session(request, answer, cookie, max_age=int(sessions.LIFETIME.total_seconds()))
    answer.delete_cookie(COOKIE, path=_PATH)
    return answer
