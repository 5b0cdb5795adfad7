"""HTTP: where GitHub delivers its webhooks."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from gprojci_service.access import rate_limits
from gprojci_service.errors import SignatureInvalid
from gprojci_service.request_body import read_limited
from gprojci_service.webhooks import service
from gprojci_service.webhooks.intake import Intake
from gprojci_service.webhooks.schemas import Accepted

router = APIRouter(prefix="/webhooks", tags=["webhooks"])


@router.post("/github", status_code=202)
async def receive_github(request: Request) -> Accepted:
    """Takes a webhook: 202 once it is stored, 401 for a wrong signature, 413 for a body over the limit.

    429 for an address from which too many wrong signatures came.
    """
    settings = request.app.state.settings
    body = await read_limited(request, settings.max_webhook_bytes, "GPROJCI_MAX_WEBHOOK_BYTES")
    try:
        service.check_signature(body, request.headers.get("x-hub-signature-256"), settings)
    except SignatureInvalid:
        limits = rate_limits.of(request)
        await run_in_threadpool(limits.count, "wrong signature", rate_limits.client_of(request))
        raise
    intake: Intake = request.app.state.intake
    headers = request.headers
    return await asyncio.wrap_future(intake.take(headers.get("x-github-event"), headers.get("x-github-delivery"), body))
