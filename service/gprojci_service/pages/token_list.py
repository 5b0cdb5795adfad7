"""Assembles the list of tokens: filtered, searched and sorted, without their secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gprojci_service.access import repository, sessions
from gprojci_service.models import Token
from gprojci_service.models.token import SCOPES
from gprojci_service.pages.addresses import address
from gprojci_service.pages.scatter import pick

PAGE = 50
STATES = {"": "active", "expired": "expired", "revoked": "revoked", "all": "all"}
SORTS = {"newest": "newest first", "used": "last used first", "name": "by name"}
_DEFAULT = {"sort": "newest"}


@dataclass(frozen=True)
class TokenRow:
    """A token with its state: active, expired or revoked."""

    token: Token
    state: str


@dataclass(frozen=True)
class TokensView:
    """The list; `made` is a token that was made this moment with its secret, which no later page shows."""

    rows: tuple[TokenRow, ...]
    state: str
    states: tuple[tuple[str, str, int], ...]
    scope: str
    scopes: dict[str, str]
    text: str
    sort: str
    sorts: dict[str, str]
    new_scopes: tuple[str, ...]
    address: Callable[..., str]
    newer: str | None
    older: str | None
    made: tuple[Token, str] | None = None


def tokens(
    session: Session, choices: Mapping[str, str], page: int, made: tuple[Token, str] | None = None
) -> TokensView:
    """The list, by what the address chooses: state, scope, q (part of a name) and sort."""
    state, sort = pick(choices.get("state"), list(STATES)), pick(choices.get("sort"), list(SORTS))
    scope, text = pick(choices.get("scope"), ["", *SCOPES]), choices.get("q", "").strip().lower()[:100]
    rows = [TokenRow(token, _state(token)) for token in repository.all_tokens(session)]
    rows = [row for row in rows if text in row.token.name.lower() and scope in ("", row.token.scope)]
    counts = {key: sum(row.state == (key or "active") for row in rows) for key in STATES} | {"all": len(rows)}
    shown = [row for row in rows if state in ("all", row.state) or (not state and row.state == "active")]
    if sort == "name":
        shown.sort(key=lambda row: row.token.name.lower())
    else:
        used = sort == "used"
        shown.sort(key=lambda row: row.token.last_used_at or row.token.created_at if used else row.token.created_at)
        shown.reverse()
    chosen = {"state": state, "scope": scope, "q": text, "sort": sort}
    return TokensView(
        rows=tuple(shown[(page - 1) * PAGE : page * PAGE]),
        state=state,
        states=tuple((key, words, counts[key]) for key, words in STATES.items()),
        scope=scope,
        scopes={"": "all scopes"} | {key: key for key in SCOPES},
        text=text,
        sort=sort,
        sorts=SORTS,
        new_scopes=SCOPES,
        address=lambda **other: address("/tokens", chosen | other, default=_DEFAULT),
        newer=address("/tokens", chosen, page - 1, default=_DEFAULT) if page > 1 else None,
        older=address("/tokens", chosen, page + 1, default=_DEFAULT) if len(shown) > page * PAGE else None,
        made=made,
    )


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "active" if sessions.is_alive(token) else "expired"
