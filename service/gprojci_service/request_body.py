"""Reads request bodies up to a limit."""

from __future__ import annotations

from fastapi import Request

from gprojci_service.errors import PayloadTooLarge


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
