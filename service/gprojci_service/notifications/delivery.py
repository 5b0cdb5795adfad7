"""Sends one message to one channel and says what became of it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import httpx

from gprojci_service import __version__
from gprojci_service.destination import Destination, DestinationRefused, resolve
from gprojci_service.models import now
from gprojci_service.notifications import formats, signing

DEADLINE_SECONDS = 20.0
"""For everything, from the look-up of the name to the status of the answer."""
_LONGEST_WAIT = timedelta(hours=6)
_GONE = 410


@dataclass(frozen=True)
class Letter:
    """A message that is due."""

    kind: str
    url: str
    secret: str
    message_id: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What became of it: sent; again (later); gone (the receiver wants no more)."""

    outcome: Literal["sent", "again", "gone"]
    detail: str
    not_before: datetime | None = None


def send(letter: Letter, *, private: bool, deadline: float = DEADLINE_SECONDS) -> Answer:
    """Posts it: only a status 2xx is a success, as Standard Webhooks has it. Follows no redirect and uses no proxy."""
    try:
        return asyncio.run(asyncio.wait_for(_post(letter, private), deadline))
    except TimeoutError:
        return Answer("again", f"no answer within {deadline:g} s")
    except DestinationRefused as error:
        return Answer("again", f"not sent: {error}")
    except (httpx.HTTPError, OSError) as error:
        return Answer("again", f"{type(error).__name__}: {error}"[:300])


async def _post(letter: Letter, private: bool) -> Answer:
    destination = await asyncio.to_thread(resolve, letter.url, private=private)
    content = formats.encode(letter.kind, letter.body)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"GProjCI/{__version__}",
        "Host": destination.url.netloc.decode(),
    }
    if letter.kind == "webhook":
        headers |= signing.headers(letter.secret, letter.message_id, int(now().timestamp()), content)
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=DEADLINE_SECONDS) as client:
        for address in destination.addresses[:-1]:
            with contextlib.suppress(httpx.ConnectError):
                return await _post_to(client, destination, address, content, headers)
        return await _post_to(client, destination, destination.addresses[-1], content, headers)


async def _post_to(
    client: httpx.AsyncClient, destination: Destination, address: str, content: bytes, headers: dict[str, str]
) -> Answer:
    """To one of the addresses; the certificate must be the name's."""
    extensions = {"sni_hostname": destination.url.host}
    url = destination.at(address)
    async with client.stream("POST", url, content=content, headers=headers, extensions=extensions) as response:
        return _read(response)


def _read(response: httpx.Response) -> Answer:
    """The status says it all: what a receiver writes is not shown to anybody."""
    detail = f"HTTP {response.status_code}"
    if response.is_success:
        return Answer("sent", detail)
    if response.status_code == _GONE:
        return Answer("gone", detail)
    if response.is_redirect:
        return Answer("again", f"{detail}: redirects are not followed; set the address that it leads to")
    return Answer("again", detail, _retry_after(response))


def _retry_after(response: httpx.Response) -> datetime | None:
    text = response.headers.get("retry-after", "")
    return now() + min(timedelta(seconds=int(text[:9])), _LONGEST_WAIT) if text.isdecimal() else None
