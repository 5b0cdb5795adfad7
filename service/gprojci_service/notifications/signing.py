"""Signatures of outgoing webhooks, after the Standard Webhooks specification (https://www.standardwebhooks.com), v1."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
_FEWEST_BYTES, _MOST_BYTES = 24, 64


def new_secret() -> str:
    """A secret that nobody knows yet."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """The bytes to sign with.

    Raises:
        ValueError: it is not `whsec_` and the base64 of 24 to 64 bytes.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("is not base64") from error
    if not secret.startswith(PREFIX) or not _FEWEST_BYTES <= len(key) <= _MOST_BYTES:
        raise ValueError(f"must be {PREFIX} and the base64 of {_FEWEST_BYTES} to {_MOST_BYTES} bytes")
    return key


def headers(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of a delivery; `timestamp` is in seconds since 1970."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
