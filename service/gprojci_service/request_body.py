"""Reads request bodies up to a limit."""

from __future__ import annotations

from fastapi import Request

from gprojci_service.errors import InvalidRequest, PayloadTooLarge


async def read_limited(request: Request, limit: int, setting: str) -> bytes:
    """The request's body; `setting` names the variable that `limit` comes from.

    Raises:
        PayloadTooLarge: it is longer than `limit` bytes, declared or not.
    """
    declared = request.headers.get("content-length", "0")
    body = bytearray()
    if declared.isdigit() and int(declared) <= limit:
        async for part in request.stream():
            body += part
            if len(body) > limit:
                break
        else:
            return bytes(body)
    raise PayloadTooLarge(f"the body is larger than {limit} bytes ({setting})")


async def read_report(request: Request) -> str:
    """The request's body as the text of a report.

    Raises:
        PayloadTooLarge: it is longer than GPROJCI_MAX_REPORT_BYTES.
        InvalidRequest: it is not UTF-8.
    """
    limit = request.app.state.settings.max_report_bytes
    body = await read_limited(request, limit, "GPROJCI_MAX_REPORT_BYTES")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("the body is not JSON text in UTF-8; send the report uncompressed") from error
