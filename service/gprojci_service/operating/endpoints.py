"""HTTP: health, readiness, metrics."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gprojci_service import __version__
from gprojci_service.access.service import require_read
from gprojci_service.operating import metrics, service
from gprojci_service.operating.schemas import Alive, Ready

router = APIRouter(tags=["operating"])


@router.get("/healthz")
def healthz() -> Alive:
    """Whether this process answers; it asks nobody else, so that no outage elsewhere has it restarted."""
    return Alive(status="ok", version=__version__)


@router.get("/readyz", responses={503: {"model": Ready, "description": "the database or its schema is not ready"}})
def readyz(request: Request, response: Response) -> Ready:
    """Whether the database answers and has this version's schema; the broker is told of."""
    found = service.ready(request.app.state.context)
    response.status_code = 200 if found.ready else 503
    return found


@router.get("/metrics", dependencies=[Depends(require_read, scope="function")])
def read_metrics(request: Request) -> Response:
    """The service's metrics for Prometheus."""
    text = generate_latest(metrics.registry(request.app.state.context))
    return Response(text, media_type=CONTENT_TYPE_LATEST)
