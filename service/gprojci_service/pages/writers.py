"""Who may change something by a form of the pages: a token of scope `write`, or a person whom GitHub lets write."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from gprojci_service.access import audit, people, repository, service, sessions
from gprojci_service.access.service import SessionDep
from gprojci_service.errors import Forbidden, InvalidRequest, Unauthorized
from gprojci_service.github.people import Role
from gprojci_service.models import Person
from gprojci_service.pages.endpoints import look_at_visitor
from gprojci_service.request_body import read_limited

FORM_BYTES = 16 * 1024


async def _form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidRequest("a form is needed, as the pages have it; programs use the REST API")
    body = await read_limited(request, FORM_BYTES, "the length of a form")
    form = dict(parse_qsl(body.decode("utf-8", "replace").replace("\x00", ""), keep_blank_values=True))
    request.state.form = form  # for the page that shows it again
    return form


Form = Annotated[dict[str, str], Depends(_form)]


def _role(request: Request, form: Form) -> Role | None:
    """What the person may do in the project that their form is about; GitHub is asked outside of any transaction.

    Raises:
        Unauthorized: nobody is signed in.
        FormNotOurs: the form came from elsewhere.
        GitHubSilent: GitHub does not answer.
    """
    with request.app.state.database.session(writes=False) as session:
        known = look_at_visitor(request, session)
        if known is None or not known.is_somebody:
            raise Unauthorized("sign in first")
        sessions.check_form(known, form.get("csrf", ""))
        project = repository.project_named(session, request.path_params)
    return _ask(request, project, known.person)


def _writer(
    request: Request,
    form: Form,
    role: Annotated[Role | None, Depends(_role)],
    session: SessionDep,
) -> sessions.Visitor:
    """The visitor, whose change the audit log has.

    Raises:
        Forbidden: they may not write. Else as `_role`.
    """
    known = look_at_visitor(request, session)
    if known is None:  # ended while GitHub was asked
        raise Unauthorized("sign in first")
    if known.token is not None and not service.includes(known.token.scope, "write"):
        raise Forbidden(f"this token has scope {known.token.scope!r}, this needs 'write'")
    if known.person is not None and role not in ("maintainer", "admin"):
        raise Forbidden(f"GitHub does not let {known.name} write to this repository, as this needs")
    audit.note(session, request, audit.Actor(known.name, "session"), form)
    return known


Writer = Annotated[sessions.Visitor, Depends(_writer, scope="function")]
"""First among an endpoint's parameters: the session's transaction begins after GitHub was asked."""


def auditor(request: Request, project: str = "") -> None:
    """FastAPI dependency of the audit log's page: an admin's token, or a person who is admin of the project asked for.

    Raises:
        Unauthorized: nobody is signed in.
        Forbidden: they are no admin.
        GitHubSilent: GitHub does not answer.
    """
    with request.app.state.database.session(writes=False) as session:
        known = look_at_visitor(request, session)
    if known is None or not known.is_somebody:
        raise Unauthorized("sign in with a token of scope 'admin', or with GitHub, first")
    if known.person is not None:
        if not project:
            raise Forbidden("name one of your repositories: /audit?project=OWNER/NAME shows its log to its admins")
        if _ask(request, project, known.person) != "admin":
            raise Forbidden(f"GitHub does not have {known.name} as an admin of {project}")
    elif known.token is None or not service.includes(known.token.scope, "admin"):
        raise Forbidden("the audit log is for tokens of scope 'admin'")


def _ask(request: Request, project: str | None, person: Person | None) -> Role | None:
    if person is None or project is None:
        return None
    return people.role_of(request.app.state.context.github, project, person)
