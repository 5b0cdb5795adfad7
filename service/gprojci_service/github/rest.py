"""One request to GitHub's REST API, with timeouts, redirects and rate limits; faults that pass are told from refusals.

Sources: GitHub's REST documentation, "Best practices for using the REST API" (rate limits, retries, redirects,
conditional requests) and "API versions".
"""

from __future__ import annotations

import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, TypeVar

import httpx
from opentelemetry import trace

from gprojci_service.github.outgoing import Answer

# GitHub asks for at least this long after a secondary limit that names no time.
SECONDARY_LIMIT_SECONDS = 60.0
LONGEST_REST_SECONDS = 3 * 3600.0
# A renamed or transferred repository is answered with where it is now; the method and the body stay as they are.
NOT_MODIFIED = 304
REDIRECTS = (301, 302, 307, 308)
MOST_REDIRECTS = 5
PER_PAGE = 100
REMEMBERED = 1000
"""Answers kept for the next conditional request, the least recently used forgotten first."""
T = TypeVar("T")
_TRACER = trace.get_tracer(__name__)


class Failure(Exception):
    """A request without success; `status` is None where no answer came."""

    def __init__(self, answer: Answer, status: int | None = None) -> None:
        super().__init__(answer.detail)
        self.answer = answer
        self.status = status


class Rest:
    """Requests below a base URL. After a rate limit nothing is asked for its holder until GitHub allows it again.

    After a request that took `timeout_seconds` without an answer nothing is asked for twice as long.
    """

    def __init__(self, api_url: str, timeout_seconds: float) -> None:
        self.api_url = api_url
        self.timeout_seconds = timeout_seconds
        self.rest_after_timeout_seconds = 2 * timeout_seconds
        self._rests_until: dict[str, datetime] = {}
        self._known: OrderedDict[tuple[str, str], tuple[str, Any]] = OrderedDict()

    def request(
        self, method: str, path: str, *, holder: str, authorization: str | None, body: Any = None, query: Any = None
    ) -> dict[str, Any]:
        """The JSON object of a success. `holder` is whose rate limit counts: the App, an installation, a user.

        Without `authorization` the request is nobody's.

        Raises:
            Failure: GitHub was not asked, did not answer or did not agree.
        """
        answer = self._answer(method, path, holder=holder, authorization=authorization, body=body, query=query)
        content = _json(answer)
        if not isinstance(content, dict):
            raise Failure(Answer("again", "HTTP success, but the answer is not GitHub's JSON"))
        return content

    def read(self, path: str, *, holder: str, authorization: str) -> Any:
        """The JSON of a GET, an object or a list. What has not changed since it was last read costs no rate limit.

        Raises:
            Failure: GitHub was not asked, did not answer or did not agree.
        """
        etag, content = self._known.get((holder, path), (None, None))
        answer = self._answer("GET", path, holder=holder, authorization=authorization, etag=etag)
        if answer.status_code == NOT_MODIFIED:
            self._known.move_to_end((holder, path))
            return content
        content = _json(answer)
        if not isinstance(content, dict | list):
            raise Failure(Answer("again", "HTTP success, but the answer is not GitHub's JSON"))
        self._remember(holder, path, answer.headers.get("etag"), content)
        return content

    def _remember(self, holder: str, path: str, etag: str | None, content: Any) -> None:
        self._known.pop((holder, path), None)
        if etag is not None:
            self._known[holder, path] = (etag, content)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def _answer(
        self,
        method: str,
        path: str,
        *,
        holder: str,
        authorization: str | None,
        body: Any = None,
        query: Any = None,
        etag: str | None = None,
    ) -> httpx.Response:
        until = self._rests_until.get(holder)
        if until is not None and until > datetime.now(UTC):
            detail = f"GitHub is not asked until {until:%Y-%m-%d %H:%M:%S} UTC, after a rate limit or a timeout"
            raise Failure(Answer("again", detail, until))
        try:
            where = {"url.path": path}
            with _TRACER.start_as_current_span(f"GitHub {method}", kind=trace.SpanKind.CLIENT, attributes=where):
                response = self._follow(
                    method,
                    httpx.URL(self.api_url + path),
                    json=body,
                    params=query,
                    headers={
                        **({"Authorization": f"Bearer {authorization}"} if authorization is not None else {}),
                        **({"If-None-Match": etag} if etag is not None else {}),
                        "Accept": "application/vnd.github+json",
                        "X-GitHub-Api-Version": "2022-11-28",
                        "User-Agent": "gprojci",
                    },
                )
        except httpx.TimeoutException as error:
            # Each further wait for a GitHub that hangs would hold up webhooks and verdicts behind it.
            self._rests_until[holder] = until = datetime.now(UTC) + timedelta(seconds=self.rest_after_timeout_seconds)
            detail = f"no answer within {self.timeout_seconds:g} s ({type(error).__name__})"
            raise Failure(Answer("again", detail, until)) from error
        except httpx.HTTPError as error:
            raise Failure(Answer("again", f"{type(error).__name__}: {error}")) from error
        if response.is_success or (etag is not None and response.status_code == NOT_MODIFIED):
            return response
        raise self._failure(response, holder)

    def _follow(self, method: str, address: httpx.URL, **request: Any) -> httpx.Response:
        """The answer at the end of the redirects, each asked with the same method and body.

        Raises:
            Failure: they lead to another host, which must not see the credential, or in a circle.
        """
        ask = partial(httpx.request, timeout=self.timeout_seconds, follow_redirects=False, verify=_certificates())
        for _ in range(MOST_REDIRECTS + 1):
            response = ask(method, address, **request)
            location = response.headers.get("location")
            if response.status_code not in REDIRECTS or not location:
                return response
            before, address = address, address.join(location)
            if (address.scheme, address.host, address.port) != (before.scheme, before.host, before.port):
                reason = f"HTTP {response.status_code}: redirected from {before.host} to another host, {address.host}"
                raise Failure(Answer("refused", f"{reason}; is GPROJCI_GITHUB_API_URL right?"), response.status_code)
            request["params"] = None  # the new address has them
        raise Failure(Answer("refused", f"more than {MOST_REDIRECTS} redirects, the last to {address}"))

    def _failure(self, response: httpx.Response, holder: str) -> Failure:
        status = response.status_code
        detail = f"HTTP {status}: {response.text[:500]}"
        until = allowed_again(response)
        if until is not None:
            self._rests_until[holder] = until
        if until is not None or status >= 500 or status == 408:
            return Failure(Answer("again", detail, until), status)
        return Failure(Answer("refused", detail), status)


def pages(read: Callable[[str], list[T]], path: str) -> Iterator[T]:
    """The items of a list, page by page: `read` gives those of the page at a path, and a short page is the last."""
    number, found = 0, PER_PAGE
    while found == PER_PAGE:
        number += 1
        page = read(f"{path}{'&' if '?' in path else '?'}per_page={PER_PAGE}&page={number}")
        found = len(page)
        yield from page


def _json(answer: httpx.Response) -> Any:
    """What an answer holds; None where it is not JSON."""
    try:
        return answer.json()
    except ValueError:
        return None


@cache
def _certificates() -> ssl.SSLContext:
    """Whom to trust: read once, for reading it takes longer than most requests."""
    return httpx.create_ssl_context()


def allowed_again(response: httpx.Response) -> datetime | None:
    """When GitHub allows the next request after this answer, in UTC; None where no limit was met."""
    headers, now = response.headers, datetime.now(UTC)
    if response.status_code not in (403, 429, 503):
        return None
    if "retry-after" in headers:
        seconds = _number(headers["retry-after"])
    elif headers.get("x-ratelimit-remaining") == "0":
        reset = _number(headers.get("x-ratelimit-reset", ""))
        seconds = None if reset is None else reset - now.timestamp()
    elif response.status_code == 429 or (response.status_code == 403 and "rate limit" in response.text.lower()):
        seconds = None
    else:
        return None
    seconds = SECONDARY_LIMIT_SECONDS if seconds is None else seconds
    return now + timedelta(seconds=min(max(seconds, 1.0), LONGEST_REST_SECONDS))


def _number(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() else None
