"""HTTP: badges, the feed, charts as pictures and frames, link previews; what is asked for elsewhere, so cached."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from gprojci_service.access.service import SessionDep, require_read
from gprojci_service.identifier import RowId
from gprojci_service.pages.endpoints import CONTENT_SECURITY_POLICY, render
from gprojci_service.sharing import card, previews, service
from gprojci_service.sharing.badge import svg
from gprojci_service.sharing.raster import png

SECONDS = 300
"""How long a copy may be kept; READMEs on GitHub are shown through a cache that keeps to it."""
PIXELS = 1520
"""Width of a chart as a PNG: two for each of the SVG's."""
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # the file has one style element and no script
_FRAME_POLICY = CONTENT_SECURITY_POLICY.replace("frame-ancestors 'none'", "frame-ancestors *")

router = APIRouter(dependencies=[Depends(require_read, scope="function")])
Backends = Annotated[list[str] | None, Query()]


def _kept(request: Request, body: bytes, kind: str) -> Response:
    """An answer with a mark of its content: whoever has the same one is told so, without it."""
    mark = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    public = request.app.state.settings.public_read
    headers = {
        "ETag": mark,
        "Cache-Control": f"public, max-age={SECONDS}" if public else "private, no-cache",
        "Content-Security-Policy": _PICTURE_POLICY,
        "X-Content-Type-Options": "nosniff",
    }
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    if mark in known:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=kind)


@router.get("/badges/{owner}/{repo}/{what}.svg")
def badge(request: Request, session: SessionDep, owner: str, repo: str, what: str) -> Response:
    found = service.badge(session, owner, repo, what, request.query_params)
    return _kept(request, svg(found).encode(), "image/svg+xml")


@router.get("/projects/{owner}/{repo}/feed.atom")
def feed(request: Request, session: SessionDep, owner: str, repo: str) -> Response:
    return _kept(request, service.feed(session, request.app.state.settings, owner, repo), "application/atom+xml")


@router.get("/embed/{owner}/{repo}/{chart}.svg")
def picture(
    request: Request, session: SessionDep, owner: str, repo: str, chart: str, backend: Backends = None
) -> Response:
    drawn = service.picture(session, owner, repo, chart, request.query_params, backend or [])
    return _kept(request, drawn.encode(), "image/svg+xml")


@router.get("/embed/{owner}/{repo}/{chart}.png")
def pixels(
    request: Request, session: SessionDep, owner: str, repo: str, chart: str, backend: Backends = None
) -> Response:
    drawn = service.picture(session, owner, repo, chart, request.query_params, backend or [])
    return _kept(request, png(drawn, PIXELS), "image/png")


@router.get("/previews/{kind}/{number}.png")
def preview(request: Request, session: SessionDep, kind: str, number: RowId) -> Response:
    """What is shown beside a link to the page `/<kind>/<number>`."""
    return _kept(request, png(card.svg(previews.card(session, kind, number)), card.WIDTH), "image/png")


@router.get("/embed/{owner}/{repo}/{chart}")
def frame(
    request: Request, session: SessionDep, owner: str, repo: str, chart: str, backend: Backends = None
) -> Response:
    """A chart alone, which other sites may show in a frame: it has no form and no session."""
    project, words, drawn = service.drawing(session, owner, repo, chart, request.query_params, backend or [])
    page = service.page_of(project, chart, list(request.query_params.multi_items()))
    headers = {"Content-Security-Policy": _FRAME_POLICY}
    context: dict[str, Any] = {"project": project, "words": words, "drawing": drawn, "page": page}
    return render(request, "embed.html", headers=headers, draws=True, **context)
