"""How often one client may do what is costly or could be guessed at: counted in Redis, for all processes together.

Where Redis does not answer nothing is counted and a warning is logged: its loss may not lock people and webhooks out,
and no secret here is short enough to be guessed at any rate.
"""

from __future__ import annotations

import ipaddress
import logging
import time

from fastapi import Request
from limits import RateLimitItem, RateLimitItemPerHour, RateLimitItemPerMinute
from limits.errors import StorageError
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter

from gprojci_service.errors import TooManyRequests

logger = logging.getLogger(__name__)

LIMITS: dict[str, RateLimitItem] = {
    # By address, of what failed only: whoever has the right secret is never held up, not even by a neighbour who has
    # not. (Anybody can have GitHub send us webhooks with a wrong signature.)
    "sign-in": RateLimitItemPerMinute(20),
    "wrong token": RateLimitItemPerMinute(60),
    "wrong signature": RateLimitItemPerMinute(60),
    # By address, all of them: each asks GitHub.
    "sign-in with GitHub": RateLimitItemPerMinute(30),
    # By token.
    "new token": RateLimitItemPerHour(60),
    "upload": RateLimitItemPerHour(600),
}


class RateLimits:
    """Counts what clients do. A client that has gone too far is remembered here, so the others cost no look-up."""

    def __init__(self, broker_url: str) -> None:
        address = broker_url.replace("redis+socket://", "redis+unix://")
        timeouts = {"socket_connect_timeout": 0.5, "socket_timeout": 0.5}
        storage = storage_from_string(address, key_prefix="gprojci-limit", wrap_exceptions=True, **timeouts)
        self._limiter = FixedWindowRateLimiter(storage)
        self._waits: dict[tuple[str, str], float] = {}

    def count(self, kind: str, client: str) -> None:
        """Counts once.

        Raises:
            TooManyRequests: that was once too often.
        """
        until = self._waits.get((kind, client))
        if until is not None and until > time.time():
            raise _refusal(until)
        limit = LIMITS[kind]
        try:
            if self._limiter.hit(limit, kind, client):
                return
            until = self._limiter.get_window_stats(limit, kind, client).reset_time
        except StorageError as error:
            logger.warning("%s of %s is not counted: %s", kind, client, error)
            return
        now = time.time()
        self._waits = {who: end for who, end in self._waits.items() if end > now} | {(kind, client): until}
        raise _refusal(until)


def _refusal(until: float) -> TooManyRequests:
    seconds = max(1, round(until - time.time()))
    return TooManyRequests(f"too often; try again in {seconds} s", retry_after=seconds)


def of(request: Request) -> RateLimits:
    """Those of the application that the request came to."""
    limits: RateLimits = request.app.state.rate_limits
    return limits


def client_of(request: Request) -> str:
    """Who asks, as limits count: an address, of IPv6 the network that one customer has.

    Behind a proxy it is the one in X-Forwarded-For, if uvicorn trusts the proxy (FORWARDED_ALLOW_IPS).
    """
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host
