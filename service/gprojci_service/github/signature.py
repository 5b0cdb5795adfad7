"""GitHub's webhook signature: HMAC-SHA256 over the raw body, compared in constant time.

Source: GitHub's documentation, "Validating webhook deliveries" (header `X-Hub-Signature-256: sha256=<hex>`).
"""

from __future__ import annotations

import hashlib
import hmac


def sign(body: bytes, secret: str) -> str:
    """The value of `X-Hub-Signature-256` for a body."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def is_valid(body: bytes, secret: str, header: str | None) -> bool:
    """Whether the header is the body's signature under the secret; a missing or garbled header is not."""
    return header is not None and header.isascii() and hmac.compare_digest(sign(body, secret), header)
