"""HTTP: the set-up of a GitHub App, for whoever holds an admin token and then the address that it is given."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Cookie, Depends, Request, Response

from gprojci_service.access.service import require_admin
from gprojci_service.github import setup
from gprojci_service.github.schemas import SetupBegun, SetupCreate
from gprojci_service.pages.endpoints import CONTENT_SECURITY_POLICY, PageRoute, render

router = APIRouter(prefix="/github", tags=["github"], dependencies=[Depends(require_admin, scope="function")])
pages = APIRouter(prefix="/github", route_class=PageRoute)
COOKIE = "gprojci_github_setup"
# Addresses and answers carry secrets: they are kept by nobody and told to nobody.
SECRET = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


@router.post("/setup", status_code=201)
def begin_setup(request: Request, body: SetupCreate) -> SetupBegun:
    """Gives the address under which a GitHub App is set up; 409 where there is one."""
    return SetupBegun(address=setup.address(request.app.state.settings, body.organization))


@pages.get("/setup")
def setup_page(request: Request, key: str) -> Response:
    settings = request.app.state.settings
    target, manifest, nonce = setup.begin(settings, key)
    address = urlsplit(target)
    policy = CONTENT_SECURITY_POLICY.replace("form-action 'self'", f"form-action {address.scheme}://{address.netloc}")
    answer = render(
        request,
        "github_setup.html",
        headers={**SECRET, "Content-Security-Policy": policy},
        target=target,
        manifest=manifest,
        host=address.netloc,
        permissions=setup.PERMISSIONS,
        events=setup.EVENTS,
        webhook=f"{settings.public_url}/webhooks/github",
    )
    is_https = settings.public_url.startswith("https://")
    answer.set_cookie(COOKIE, nonce, max_age=3600, path="/github/setup", secure=is_https, httponly=True, samesite="lax")
    return answer


@pages.get("/setup/done")
def setup_done(
    request: Request, code: str, state: str, nonce: Annotated[str | None, Cookie(alias=COOKIE)] = None
) -> Response:
    credentials = setup.finish(request.app.state.settings, code, state, nonce)
    answer = render(request, "github_done.html", headers=SECRET, app=credentials)
    answer.delete_cookie(COOKIE, path="/github/setup")
    return answer
