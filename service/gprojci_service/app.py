"""The web application: every router, the error handler."""

from __future__ import annotations

import gc
import logging
from typing import Any

from anyio import CapacityLimiter
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, SQLAlchemyError
from starlette.exceptions import HTTPException

from gprojci_service import __version__, logs, tracing
from gprojci_service.access.endpoints import audit_router
from gprojci_service.access.endpoints import router as tokens
from gprojci_service.access.rate_limits import RateLimits
from gprojci_service.bisections.endpoints import router as bisections
from gprojci_service.boundary import Boundary
from gprojci_service.context import Context
from gprojci_service.errors import ServiceError, TooManyRequests
from gprojci_service.gate.endpoints import override_router as overrides
from gprojci_service.gate.endpoints import router as verdicts
from gprojci_service.github.endpoints import pages as github_pages
from gprojci_service.github.endpoints import router as github
from gprojci_service.inputs.endpoints import router as inputs
from gprojci_service.inputs.endpoints import worker_router as worker_inputs
from gprojci_service.jobs.endpoints import router as jobs
from gprojci_service.notifications.endpoints import router as notifications
from gprojci_service.operating.endpoints import router as operating
from gprojci_service.pages import actions, audit, error_pages, github_sign_in, regression_actions, token_actions
from gprojci_service.pages import endpoints as pages
from gprojci_service.projects.endpoints import router as projects
from gprojci_service.regressions.endpoints import router as regressions
from gprojci_service.reports.endpoints import router as reports
from gprojci_service.results.endpoints import router as results
from gprojci_service.schedules.endpoints import router as schedules
from gprojci_service.settings import Settings, load_settings
from gprojci_service.sharing.endpoints import router as sharing
from gprojci_service.training.endpoints import router as training
from gprojci_service.webhooks.endpoints import router as webhooks
from gprojci_service.webhooks.intake import Intake
from gprojci_service.workers.endpoints import claim_router as claims
from gprojci_service.workers.endpoints import list_router as workers
from gprojci_service.workers.endpoints import report_router as worker_reports
from gprojci_service.workers.endpoints import router as worker_api

logger = logging.getLogger(__name__)

_ASKING_GITHUB = 40
"""Claims of a process that may wait for GitHub at the same time, in threads of their own; more wait for these."""


def create_app(settings: Settings) -> FastAPI:
    """The application under these settings; `app.state.context` holds its connections."""
    context = Context.open(settings)
    app = FastAPI(
        title="GProj CI",
        version=__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        description="Accuracy and speed of attention kernels at every commit. Errors are "
        '`{"error": "JobNotFound", "detail": "…"}` with the fitting status.',
    )
    app.add_middleware(Boundary, settings=settings)
    app.state.rate_limits = RateLimits(settings.broker_url)
    app.state.context, app.state.settings, app.state.database = context, settings, context.database
    app.state.intake = Intake(context.database)
    app.state.asking_github = CapacityLimiter(_ASKING_GITHUB)
    public = (
        projects,
        jobs,
        results,
        reports,
        training,
        verdicts,
        overrides,
        regressions,
        notifications,
        inputs,
        workers,
        tokens,
        audit_router,
        bisections,
        schedules,
        github,
    )
    # Routes are tried in this order: first what comes in bursts, then what people wait for.
    app.include_router(webhooks)
    app.include_router(claims, prefix="/api/v1")
    app.include_router(worker_api, prefix="/api/v1")
    app.include_router(pages.router, include_in_schema=False)
    for router in (*public, worker_reports, worker_inputs):
        app.include_router(router, prefix="/api/v1")
    app.include_router(operating)
    app.include_router(github_pages, include_in_schema=False)
    app.include_router(actions.router, include_in_schema=False)
    app.include_router(regression_actions.router, include_in_schema=False)
    app.include_router(token_actions.router, include_in_schema=False)
    app.include_router(github_sign_in.router, include_in_schema=False)
    app.include_router(audit.router, include_in_schema=False)
    app.include_router(sharing, include_in_schema=False)
    pages.mount_static(app)
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(DataError, _unstorable)
    app.add_exception_handler(UnicodeEncodeError, _unstorable)
    app.add_exception_handler(SQLAlchemyError, _database_error)
    app.add_exception_handler(Exception, _unexpected_error)
    return app


def create_from_environment() -> FastAPI:
    """Factory for `uvicorn --factory`: the application of a process that does nothing else."""
    settings = load_settings()
    logs.configure(settings)
    traced = tracing.wanted()
    app = create_app(settings)
    if traced:
        tracing.start("gprojci-web", app.state.database.engine, app)
    # A page makes some ten thousand objects, and the collector would look at all that was imported each time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    return app


def _answer(status: int, error: str, detail: str, headers: Any = None) -> JSONResponse:
    return JSONResponse({"error": error, "detail": detail}, status_code=status, headers=headers)


async def _service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.retry_after)
    if getattr(request.state, "is_page", False):
        page = await run_in_threadpool(error_pages.answer, request, error)
        page.headers.update(headers if error.status != 401 else {})
        return page
    return _answer(error.status, type(error).__name__, error.detail, headers)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if getattr(request.state, "is_page", False):
        return await run_in_threadpool(error_pages.invalid, request, error)
    first = error.errors()[0]
    return _answer(422, "InvalidRequest", f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    name = {404: "NotFound", 405: "MethodNotAllowed", 413: "PayloadTooLarge"}.get(error.status_code, "HttpError")
    return _answer(error.status_code, name, str(error.detail), error.headers)


async def _unstorable(request: Request, error: Exception) -> JSONResponse:
    """JSON may say more than a database can hold: NUL and lone surrogates in texts, numbers without bounds."""
    detail = "a value cannot be stored: texts must be without NUL and lone surrogates, numbers within 64 bits"
    return _answer(422, "InvalidRequest", detail)


async def _database_error(request: Request, error: Exception) -> JSONResponse:
    logger.exception("the database failed", exc_info=error)
    return _answer(503, "DatabaseUnavailable", "the database did not answer; try again")


async def _unexpected_error(request: Request, error: Exception) -> JSONResponse:
    """A fault of ours: the log has the traceback, the caller gets the same shape as for any other error."""
    return _answer(500, "InternalError", "the service failed on this request; its log says why")
