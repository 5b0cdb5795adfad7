"""What holds for every request and answer: bodies have an end, and browsers are told what an answer may do."""

from __future__ import annotations

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gprojci_service.settings import Settings

BODY_BYTES = 4 * 1024 * 1024
"""Of a body that has no limit of its own; the longest is a worker's 200,000 characters of log, escaped."""
_OWN_LIMIT = re.compile(
    r"/webhooks/github|/api/v1/(inputs|reports|training/[^/]+|worker/attempts/[^/]+/report)",
)
_HEADERS = {
    # Pages bring a policy of their own; nothing else that is answered is to be rendered, run or framed.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_ONE_YEAR = "max-age=31536000"


class Boundary:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.headers = dict(_HEADERS)
        if settings.public_url.startswith("https://"):
            self.headers["Strict-Transport-Security"] = _ONE_YEAR

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        if _OWN_LIMIT.fullmatch(scope["path"]):
            await self.app(scope, receive, send_with_headers)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdecimal() and int(declared) > BODY_BYTES:  # refused before any of it is read
            detail = f"the body is larger than {BODY_BYTES} bytes"
            answer = JSONResponse({"error": "PayloadTooLarge", "detail": detail}, status_code=413)
            await answer(scope, receive, send_with_headers)
            return
        await self.app(scope, _limited(receive), send_with_headers)


def _limited(receive: Receive) -> Receive:
    """The same messages, until they are too long together; for a body that comes without its length."""
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > BODY_BYTES:
            raise HTTPException(413, f"the body is larger than {BODY_BYTES} bytes")
        return message

    return receive_some
