"""What a page answers to an error: the form again with the mistake beside its field, the sign-in, or the mistake alone.

It answers once the request's transaction was rolled back, so that nothing is kept of a change that did not work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError

from gprojci_service.errors import ServiceError, Unauthorized
from gprojci_service.pages import endpoints as pages
from gprojci_service.pages import token_actions

_WORDS = {403: "Not allowed", 404: "Not found"}
_TO_MEND = (409, 422)
"""Statuses of what somebody can mend in the form that they sent."""
_FORM_PAGES: dict[str, Callable[..., Response]] = {
    "jobs": pages.job_page,
    "regressions": pages.regression_page,
    "bisections": pages.bisection_page,
}
"""The page that has the forms sent to `/<name>/<number>/<form>`."""
_FORM_LISTS: dict[str, Callable[..., Response]] = {"tokens": token_actions.token_page}
"""The page that has the forms sent to `/<name>`."""


@dataclass(frozen=True)
class FormFault:
    """A form that was sent in vain: which, the field at fault (empty: the whole), why, and what was entered."""

    form: str
    field: str
    text: str
    values: dict[str, str]
    status: int


def answer(request: Request, error: ServiceError) -> Response:
    """A page about an error of a service."""
    if isinstance(error, Unauthorized):
        asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        with request.app.state.database.session(writes=False) as session:
            address = asked if request.method == "GET" else "/"
            return pages.sign_in_page(request, session, address, status=401, problem=error.detail)
    again = _form_again(request, error)
    if again is not None:
        return again
    return _said(request, error.status, _WORDS.get(error.status, "That did not work"), error.detail)


def invalid(request: Request, error: RequestValidationError) -> Response:
    """A page about an address that is not right."""
    first = error.errors()[0]
    return _said(request, 422, "This address is not right", f"{first['loc'][-1]}: {first['msg']}")


def _said(request: Request, status: int, title: str, detail: str) -> Response:
    with request.app.state.database.session(writes=False) as session:
        pages.look_at_visitor(request, session)
        return pages.render(request, "error.html", status=status, title=title, detail=detail)


def _form_again(request: Request, error: ServiceError) -> Response | None:
    """The page that the form stands on, with what is wrong; None where the error is about no form."""
    entered: dict[str, str] | None = getattr(request.state, "form", None)
    if request.method != "POST" or entered is None or error.status not in _TO_MEND:
        return None
    of: tuple[int, ...] = ()
    match request.url.path.strip("/").split("/"):
        case [name, number, form] if name in _FORM_PAGES and number.isdecimal():
            page, of = _FORM_PAGES[name], (int(number),)
        case [form] if form in _FORM_LISTS:
            page = _FORM_LISTS[form]
        case _:
            return None
    request.state.fault = FormFault(form, error.field, error.detail, entered, error.status)
    with request.app.state.database.session(writes=False) as session:
        pages.look_at_visitor(request, session)
        try:
            return page(request, session, *of)
        except ServiceError:
            return None
