"""Sign-in on the pages: a signed cookie that names a token or a person, with a mark of its own for every form (CSRF).

They are looked at again with each request, so revoking a token or blocking a person ends their sessions; a session that
was signed out is noted until its cookie expires. The key is made from the webhook
secret; the one before it is valid as well while that is changed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta

import jwt
from sqlalchemy.orm import Session

from gprojci_service.access import repository
from gprojci_service.errors import Forbidden
from gprojci_service.models import Person, Token, now
from gprojci_service.settings import Settings

COOKIE = "gprojci_session"
LIFETIME = timedelta(hours=12)
_ALGORITHM = "HS256"
_NEEDED = ["exp", "csrf", "token", "person"]
_NOBODY = 0


class FormNotOurs(Forbidden):
    """The form does not belong to this session."""


@dataclass(frozen=True)
class Visitor:
    """Whose cookie it is. Before the sign-in it names nobody, and only guards the form of the sign-in."""

    csrf: str
    token: Token | None
    person: Person | None = None

    @property
    def is_somebody(self) -> bool:
        """Whether somebody is signed in."""
        return self.token is not None or self.person is not None

    @property
    def may_write(self) -> bool:
        """Whether the pages offer changes; what a person may do in a project GitHub says when they do it."""
        return self.person is not None or (self.token is not None and self.token.scope in ("write", "admin"))

    @property
    def may_audit(self) -> bool:
        """Whether the pages offer the audit log, of a person's own projects or of all."""
        return self.person is not None or (self.token is not None and self.token.scope == "admin")

    @property
    def name(self) -> str:
        """Name of the token, or the person's login."""
        if self.person is not None:
            return self.person.login
        return "" if self.token is None else self.token.name


def start(settings: Settings, token: Token | None, person: Person | None = None) -> tuple[str, Visitor]:
    """A new session: the cookie's value and whose it is."""
    visitor = Visitor(secrets.token_urlsafe(24), token, person)
    claims = {"exp": now() + LIFETIME, "csrf": visitor.csrf}
    claims |= {"token": token.id if token else _NOBODY, "person": person.id if person else _NOBODY}
    return jwt.encode(claims, _keys(settings)[0], algorithm=_ALGORITHM), visitor


def visitor(session: Session, settings: Settings, cookie: str | None) -> Visitor | None:
    """Whose cookie it is; None where it is none of ours, too old, signed out, or its token or person has ended."""
    for key in _keys(settings) if cookie else ():
        try:
            claims = jwt.decode(cookie or "", key, algorithms=[_ALGORITHM], options={"require": _NEEDED})
        except jwt.InvalidTokenError:
            continue
        if claims["token"] == _NOBODY and claims["person"] == _NOBODY:
            return Visitor(claims["csrf"], None)
        if repository.has_ended(session, _mark(claims["csrf"])):
            return None
        if claims["person"] != _NOBODY:
            person = repository.person_by_id(session, claims["person"])
            return Visitor(claims["csrf"], None, person) if person is not None and person.blocked_at is None else None
        token = repository.by_id(session, claims["token"])
        return Visitor(claims["csrf"], token) if token is not None and is_alive(token) else None
    return None


def may_read(session: Session, settings: Settings, cookie: str | None) -> bool:
    """Whether it is the cookie of somebody who is signed in."""
    known = visitor(session, settings, cookie)
    return known is not None and known.is_somebody


def end(session: Session, known: Visitor) -> None:
    """Signs out: a copy of the cookie is none any more either."""
    if known.is_somebody:
        repository.end_session(session, _mark(known.csrf), now() + LIFETIME, now())


def _mark(csrf: str) -> str:
    return hashlib.sha256(csrf.encode()).hexdigest()


def is_alive(token: Token) -> bool:
    """Whether a token is neither revoked nor expired."""
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > now())


def check_form(known: Visitor | None, csrf: str) -> Visitor:
    """The visitor, whose form it must be.

    Raises:
        FormNotOurs: it is another's, or the session has ended.
    """
    if known is None or not hmac.compare_digest(known.csrf.encode(), csrf.encode()):
        raise FormNotOurs("the session has ended, or this form came from elsewhere; load the page again and repeat it")
    return known


def _keys(settings: Settings) -> tuple[bytes, ...]:
    return settings.keys("gprojci: sessions of the pages")
