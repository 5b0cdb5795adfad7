"""HTTP: the pages, their static files, and the headers that keep both safe."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Callable, Coroutine
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from sqlalchemy.orm import Session

from gprojci_service import __version__
from gprojci_service.access import sessions
from gprojci_service.access.service import SessionDep, require_read
from gprojci_service.pages import (
    bisections,
    comparison,
    formatting,
    history,
    imported,
    input_sets,
    job,
    job_list,
    project_list,
    regressions,
    rows,
    service,
    training,
    worker_list,
)

HERE = Path(__file__).parent
# Plotly writes the styles of its marks through the CSSOM, which `style-src 'self'` allows, and takes its own rules from
# static/vendor/plotly.css; so neither 'unsafe-inline' nor 'unsafe-eval' is needed anywhere. Only two style attributes
# are allowed, by the hash of their whole text: the empty one of its heat maps, and the one of bold text in its labels.
_STYLE_ATTRIBUTES = ("", "font-weight:bold")


def _hash_source(text: str) -> str:
    """A text as a hash source of a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    f"style-src-attr 'unsafe-hashes' {' '.join(map(_hash_source, _STYLE_ATTRIBUTES))}; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".LICENSE": "text/plain"}
_FOREVER = "public, max-age=31536000, immutable"


class PageRoute(APIRoute):
    """A route whose errors are pages too: `error_pages.answer` makes them, once the transaction has ended."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def as_page(request: Request) -> Response:
            request.state.is_page = True
            return await handler(request)

        return as_page


def look_at_visitor(request: Request, session: SessionDep) -> sessions.Visitor | None:
    """FastAPI dependency of every page: whose cookie came with the request, which the page then has."""
    known = sessions.visitor(session, request.app.state.settings, request.cookies.get(sessions.COOKIE))
    request.state.visitor = known
    return known


router = APIRouter(
    route_class=PageRoute,
    dependencies=[Depends(look_at_visitor, scope="function"), Depends(require_read, scope="function")],
)
Before = Annotated[int | None, Query(ge=1, le=2**62)]
Page = Annotated[int, Query(ge=1, le=100_000)]
JobId = Annotated[int, PathParameter(ge=1, le=2**62)]


def _badge(environment: Environment, kind: str, only: bool) -> Markup:
    """What the macro of badges makes."""
    module: Any = environment.get_template("_badge.html").module
    return Markup(module.badge(kind, only))  # noqa: S704 (the template has escaped it)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    badge = lru_cache(maxsize=256)(partial(_badge, environment))
    environment.filters.update(formatting.FILTERS | rows.FILTERS)
    environment.filters["finding_rows"] = partial(rows.finding_rows, badge)
    environment.filters["change_rows"] = partial(rows.change_rows, badge)
    environment.globals.update(
        badge_of=badge, static=static_url, version=__version__, section="", draws=False, plotly_url="", plotly_marks=()
    )
    return environment


def render(
    request: Request, template: str, *, status: int = 200, headers: dict[str, str] | None = None, **context: Any
) -> Response:
    """A page, compressed where the browser takes it, with the headers that every page has."""
    if context.get("draws"):
        context |= {"plotly_url": plotly_url(), "plotly_marks": _plotly()[3]}
    known = getattr(request.state, "visitor", None)
    visitor = known if known is not None and known.is_somebody else None
    fault = getattr(request.state, "fault", None)  # of a form on this page that was sent in vain
    status = status if fault is None else fault.status
    context |= {"request": request, "visitor": visitor, "fault": fault}
    text = _environment().get_template(template).render(**context)
    headers = HEADERS | (headers or {})
    if visitor is not None or "csrf" in context:
        # Kept by nobody, and not compressed: the length of a compressed page would tell the form's mark (BREACH).
        headers = headers | {"Cache-Control": "no-store", "Vary": "Cookie"}
        return Response(text, status, headers=headers, media_type="text/html; charset=utf-8")
    return _compressed(request, text.encode(), "text/html; charset=utf-8", status, headers | {"Vary": "Cookie"})


def own_address(text: str) -> str:
    """An address of these pages; the overview where it leads elsewhere."""
    return text if re.fullmatch(r"/(?![/\\])[\x21-\x7e]*", text) else "/"


def sign_in_page(request: Request, session: Session, address: str, *, status: int = 200, problem: str = "") -> Response:
    """The form of the sign-in, with a session that guards it, on the way to an address."""
    cookie, known = None, look_at_visitor(request, session)
    if known is None:
        cookie, known = sessions.start(request.app.state.settings, None)
    context: dict[str, Any] = {"csrf": known.csrf, "address": own_address(address), "problem": problem}
    context["github"] = request.app.state.settings.github_client_id is not None
    answer = render(request, "sign_in.html", status=status, **context)
    if cookie is not None:
        set_session(request, answer, cookie)
    return answer


def set_session(request: Request, answer: Response, cookie: str, max_age: int | None = None) -> None:
    """Gives the browser a session's cookie, for so many seconds; until it is closed where none are given."""
    secure = request.app.state.settings.public_url.startswith("https://")
    answer.set_cookie(sessions.COOKIE, cookie, max_age=max_age, httponly=True, samesite="strict", secure=secure)


def _compressed(request: Request, body: bytes, kind: str, status: int, headers: dict[str, str]) -> Response:
    headers = headers | {"Vary": f"{headers['Vary']}, Accept-Encoding" if "Vary" in headers else "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", "") and len(body) > 1024:
        body, headers = gzip.compress(body, compresslevel=4), headers | {"Content-Encoding": "gzip"}
    return Response(body, status, headers=headers, media_type=kind)


@router.get("/")
def overview(request: Request, session: SessionDep) -> Response:
    view = service.overview(session, request.app.state.settings, request.query_params)
    return render(request, "overview.html", view=view, section="overview", draws=view.scatter is not None)


@router.get("/projects")
def projects(request: Request, session: SessionDep, page: Page = 1) -> Response:
    view = project_list.projects(session, request.query_params, page)
    return render(request, "projects.html", view=view, section="projects", sorts=project_list.SORTS)


@router.get("/projects/{owner}/{repo}")
def project(request: Request, session: SessionDep, owner: str, repo: str, before: Before = None) -> Response:
    view = service.project(session, owner, repo, request.query_params, before)
    return render(request, "project.html", view=view, section="projects", draws=view.scatter is not None)


@router.get("/projects/{owner}/{repo}/history")
def project_history(
    request: Request, session: SessionDep, owner: str, repo: str, backend: Annotated[list[str] | None, Query()] = None
) -> Response:
    view = history.history(session, owner, repo, request.query_params, backend or [])
    return render(request, "history.html", view=view, section="projects", draws=view.drawing is not None)


@router.get("/projects/{owner}/{repo}/compare")
def project_compare(request: Request, session: SessionDep, owner: str, repo: str) -> Response:
    view = comparison.compare(session, owner, repo, request.query_params)
    status = 404 if view.problem else 200
    return render(request, "compare.html", status=status, view=view, section="projects", draws=bool(view.drawings))


@router.get("/jobs")
def jobs(request: Request, session: SessionDep, before: Before = None, after: Before = None) -> Response:
    view = job_list.jobs(session, request.query_params, before, after)
    return render(request, "jobs.html", view=view, section="jobs")


@router.get("/jobs/{job_id}")
def job_page(request: Request, session: SessionDep, job_id: JobId) -> Response:
    view = job.job(session, request.app.state.settings, job_id, request.query_params)
    draws = view.report is not None and view.report.draws
    return render(request, "job.html", view=view, section="jobs", draws=draws)


@router.get("/jobs/{job_id}/live")
def job_live(request: Request, session: SessionDep, job_id: JobId) -> Response:
    """The part of a job's page that moves; once the job has ended it has the browser load the whole page."""
    view = job.live(session, job_id)
    return render(request, "_job_live.html", headers={} if view.live else {"HX-Refresh": "true"}, view=view)


@router.get("/regressions")
def regression_list(request: Request, session: SessionDep, page: Page = 1) -> Response:
    view = regressions.regressions(session, request.query_params, page)
    return render(request, "regressions.html", view=view, section="regressions")


@router.get("/regressions/{regression_id}")
def regression_page(request: Request, session: SessionDep, regression_id: JobId) -> Response:
    view = regressions.regression(session, regression_id, request.query_params)
    return render(request, "regression.html", view=view, section="regressions", draws=view.drawing is not None)


@router.get("/bisections")
def bisection_list(request: Request, session: SessionDep, page: Page = 1) -> Response:
    view = bisections.bisections(session, request.query_params, page)
    return render(request, "bisections.html", view=view, section="regressions")


@router.get("/bisections/{bisection_id}")
def bisection_page(request: Request, session: SessionDep, bisection_id: JobId) -> Response:
    view = bisections.bisection(session, bisection_id)
    return render(request, "bisection.html", view=view, section="regressions", draws=view.drawing is not None)


@router.get("/bisections/{bisection_id}/live")
def bisection_live(
    request: Request, session: SessionDep, bisection_id: JobId, known: Annotated[int, Query(ge=0)] = 0
) -> Response:
    """Nothing while a search has found no more than the page shows; else the browser loads the page anew."""
    moved = bisections.moved(session, bisection_id, known)
    return Response(status_code=200 if moved else 204, headers=HEADERS | ({"HX-Refresh": "true"} if moved else {}))


@router.get("/reports")
def reports(request: Request, session: SessionDep, page: Page = 1) -> Response:
    view = imported.reports(session, request.query_params, page)
    return render(request, "reports.html", view=view, section="reports")


@router.get("/reports/{report_id}")
def report(request: Request, session: SessionDep, report_id: JobId) -> Response:
    view = imported.report(session, report_id, request.query_params)
    return render(request, "report.html", view=view, section="reports", draws=view.report.draws)


@router.get("/training")
def trainings(request: Request, session: SessionDep) -> Response:
    return render(request, "trainings.html", view=training.trainings(session), section="training")


@router.get("/training/{name}")
def training_page(request: Request, session: SessionDep, name: str) -> Response:
    view = training.training(session, name, request.query_params)
    return render(request, "training.html", view=view, section="training", draws=bool(view.story or view.detail))


@router.get("/inputs")
def inputs(request: Request, session: SessionDep) -> Response:
    view = input_sets.inputs(session)
    return render(request, "inputs.html", view=view, section="inputs", draws=any(item.training for item in view.inputs))


@router.get("/workers")
def workers(request: Request, session: SessionDep, page: Page = 1) -> Response:
    view = worker_list.workers(session, request.app.state.settings, request.query_params, page)
    return render(request, "workers.html", view=view, section="workers")


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Static files by name: content, type, hash of the content. Read once: nothing outside the folder is served."""
    found = {}
    for path in sorted((HERE / "static").rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            name = path.relative_to(HERE / "static").as_posix()
            found[name] = (content, _TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:12])
    return found


def static_url(name: str) -> str:
    """Address of a static file; it changes with the content, so that browsers may keep it for ever."""
    return f"/static/{name}?v={_files()[name][2]}"


@cache
def _plotly() -> tuple[bytes, bytes, str, tuple[str, ...]]:
    """plotly.js of the installed plotly package: as it is, compressed, the hash of its content, and the ids of style
    elements it would insert for its maps: where an element has that id it does not, so the policy has none to block.
    """
    text = get_plotlyjs()
    plain = text.encode()
    marks = tuple(dict.fromkeys(re.findall(r'getElementById\("([0-9a-f]{64})"\)', text)))
    return plain, gzip.compress(plain, compresslevel=6), hashlib.sha256(plain).hexdigest()[:12], marks


def plotly_url() -> str:
    """Address of plotly.js, with the hash of its content in the path."""
    return f"/static/plotly-{_plotly()[2]}.js"


def mount_static(app: FastAPI) -> None:
    """Adds the routes of the static files, which need no token."""

    def plotly_js(request: Request, digest: str) -> Response:
        plain, packed, current, _ = _plotly()
        if digest != current:
            return Response("this version of plotly.js is not installed\n", 404, media_type="text/plain")
        headers = {"Cache-Control": _FOREVER, "Vary": "Accept-Encoding", "X-Content-Type-Options": "nosniff"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(
                packed, headers=headers | {"Content-Encoding": "gzip"}, media_type="text/javascript; charset=utf-8"
            )
        return Response(plain, headers=headers, media_type="text/javascript; charset=utf-8")

    def static_file(request: Request, name: str, v: str = "") -> Response:
        found = _files().get(name)
        if found is None:
            return Response("no such file\n", 404, media_type="text/plain")
        content, kind, digest = found
        headers = {"Cache-Control": _FOREVER if v == digest else "no-cache", "X-Content-Type-Options": "nosniff"}
        return _compressed(request, content, f"{kind}; charset=utf-8", 200, headers)

    app.add_api_route("/static/plotly-{digest}.js", plotly_js, include_in_schema=False)
    app.add_api_route("/static/{name:path}", static_file, include_in_schema=False)
