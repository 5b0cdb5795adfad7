"""Decisions about people who sign in with GitHub: who comes in, and what they may do."""

from __future__ import annotations

from sqlalchemy.orm import Session

from gprojci_service.access import repository
from gprojci_service.errors import Forbidden, NotFound
from gprojci_service.github import people
from gprojci_service.github.client import GitHub
from gprojci_service.github.people import Account, Role
from gprojci_service.models import Person, now

MOST_ASKED = 100
"""Projects that GitHub is asked about before somebody is turned away."""


class PersonNotFound(NotFound):
    """Nobody of that login has signed in."""


def admit(session: Session, account: Account) -> Person:
    """The person of an account, made at the first sign-in; follows a renamed account.

    Raises:
        Forbidden: the account is blocked.
    """
    person = repository.person_of(session, account.github_id)
    if person is None:
        person = Person(github_id=account.github_id)
        session.add(person)
    if person.blocked_at is not None:
        raise Forbidden(f"the account {account.login} is blocked here")
    person.login, person.signed_in_at = account.login, now()
    session.flush()
    return person


def set_blocked(session: Session, login: str, *, blocked: bool) -> Person:
    """Blocks a person, or no longer.

    Raises:
        PersonNotFound: nobody of that login has signed in.
    """
    person = repository.person_by_login(session, login)
    if person is None:
        raise PersonNotFound(f"nobody called {login!r} has signed in")
    person.blocked_at = (person.blocked_at or now()) if blocked else None
    return person


def check_may_read(github: GitHub, projects: list[tuple[str, bool]], account: Account) -> None:
    """For a service that is not open to everybody. GitHub gives everybody `read` in a public repository.

    Args:
        projects: names, and whether each is private.

    Raises:
        Forbidden: GitHub lets the account into none of the private repositories, nor write to a public one.
        GitHubSilent: GitHub does not answer.
    """
    for name, private in projects[:MOST_ASKED]:
        role = people.role(github, name, account.github_id, account.login)
        if role is not None and (private or role != "reader"):
            return
    raise Forbidden(f"{account.login} has a part in none of the repositories here; ask whoever runs this service")


def role_of(github: GitHub, project: str, person: Person) -> Role | None:
    """What somebody may do in a project, as GitHub says now.

    Raises:
        GitHubSilent: GitHub does not answer.
    """
    return people.role(github, project, person.github_id, person.login)
