"""Commands `gprojci token …` and `gprojci person …`: tokens, and people who sign in with GitHub."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click
import httpx
from sqlalchemy.orm import Session

from gprojci_service.access import audit, people, repository, service
from gprojci_service.access.schemas import TokenOut
from gprojci_service.client import ServiceGroup, call, named_service, show, table
from gprojci_service.context import Context
from gprojci_service.models.token import SCOPES
from gprojci_service.settings import load_settings


@click.group(cls=ServiceGroup)
def token() -> None:
    """Tokens of workers and API users: create, list, revoke.

    Where GPROJCI_DATABASE_URL is set they are kept there directly, which the first token needs; otherwise, and with
    --url, the service is asked.
    """


@token.command("create")
@click.argument("name")
@click.option(
    "--scope",
    required=True,
    type=click.Choice(SCOPES),
    help="worker: the worker API; read: what is open where reading is; write: what a user may change; admin: all.",
)
@click.option("--expires-in-days", type=click.IntRange(1, 3650), help="Default: never.")
@click.pass_obj
def token_create(client: httpx.Client, name: str, scope: str, expires_in_days: int | None) -> None:
    """Makes a token and prints it, this once."""
    if _asks_the_service():
        body = {"name": name, "scope": scope, "expires_in_days": expires_in_days}
        made = call(client, "POST", "/tokens", json=body)
    else:
        expires = timedelta(days=expires_in_days) if expires_in_days else None
        with _database(writes=True) as session:
            row, secret = service.create_token(session, name, scope, expires_in=expires)
            audit.record(session, _here(), "create_token", {"name": name, "scope": scope, "token_id": row.id})
            made = {**_view(row), "secret": secret}
    show(made, [made["secret"]])


@token.command("list")
@click.pass_obj
def token_list(client: httpx.Client) -> None:
    """Lists the tokens, without their secrets."""
    if _asks_the_service():
        found = call(client, "GET", "/tokens")
    else:
        with _database(writes=False) as session:
            found = [_view(row) for row in repository.all_tokens(session)]
    rows = ((row["id"], row["scope"], _state(row), (row["last_used_at"] or "never")[:16], row["name"]) for row in found)
    show(found, table(("id", "scope", "state", "last used", "name"), rows))


@token.command("revoke")
@click.argument("token_id", type=int)
@click.pass_obj
def token_revoke(client: httpx.Client, token_id: int) -> None:
    """Revokes a token at once."""
    if _asks_the_service():
        gone = call(client, "POST", f"/tokens/{token_id}/revoke")
    else:
        with _database(writes=True) as session:
            gone = _view(service.revoke_token(session, token_id))
            audit.record(session, _here(), "revoke_token", {"token_id": token_id})
    show(gone, [f"token {token_id} is revoked"])


@click.group()
def person() -> None:
    """People who sign in with GitHub: block, unblock. On the database of GPROJCI_DATABASE_URL."""


@person.command("block")
@click.argument("login")
def person_block(login: str) -> None:
    """Ends the sessions of a person, and lets them in no more."""
    _set_blocked(login, blocked=True)
    click.echo(f"{login} is blocked")


@person.command("unblock")
@click.argument("login")
def person_unblock(login: str) -> None:
    """Lets a person sign in again."""
    _set_blocked(login, blocked=False)
    click.echo(f"{login} may sign in")


def _set_blocked(login: str, *, blocked: bool) -> None:
    with _database(writes=True) as session:
        people.set_blocked(session, login, blocked=blocked)
        audit.record(session, _here(), "block_person" if blocked else "unblock_person", {"login": login})


def _here() -> audit.Actor:
    """Whoever may run commands with the database's address."""
    return audit.Actor(getpass.getuser(), "command")


def _asks_the_service() -> bool:
    """`--url` means the service, and so does an environment that names no database."""
    return named_service() is not None or not os.environ.get("GPROJCI_DATABASE_URL")


@contextmanager
def _database(*, writes: bool) -> Iterator[Session]:
    context = Context.open(load_settings())
    with context.database.session(writes=writes) as session:
        yield session
    context.database.close()


def _view(row: object) -> dict[str, Any]:
    return TokenOut.model_validate(row).model_dump(mode="json")


def _state(entry: dict[str, Any]) -> str:
    if entry["revoked_at"]:
        return "revoked"
    return f"expires {entry['expires_at'][:10]}" if entry["expires_at"] else "active"
