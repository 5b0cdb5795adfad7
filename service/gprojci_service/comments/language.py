"""What can be said in a comment: the commands, their parser, and the help about them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gprojci_service.errors import InvalidRequest

PREFIX = "/gprojci"
MOST_COMMANDS = 10
LONGEST_LINE = 700
SHA = re.compile(r"[0-9a-f]{7,64}")
HELP = (
    ("run", "measures the head commit; of an untrusted pull request it approves that commit. `run SHA` names it"),
    ("approve", "the same, for commits that wait for an approval"),
    ("rerun", "measures the head commit anew"),
    ("cancel", "cancels what is under way"),
    ("baseline SHA", "compares the head with a commit of the base branch as well; decides no merge"),
    ("accept METRIC REASON", "accepts a limit that fails, such as `dq_error_ceiling`, for this commit alone"),
    ("help", "shows this"),
)


class CommandUnclear(InvalidRequest):
    """A line that begins with `/gprojci` and is no command."""


@dataclass(frozen=True)
class Command:
    """One command; which of the others are there depends on its name."""

    name: str
    sha: str | None = None
    backend: str = ""
    limit_key: str = ""
    reason: str = ""


def lines(body: str) -> list[str]:
    """The lines a comment begins with that are for us; from the first other line on it is prose."""
    found: list[str] = []
    for line in body.splitlines():
        words = line.split()
        if words and words[0].lower() == PREFIX and len(found) < MOST_COMMANDS:
            found.append(" ".join(words)[:LONGEST_LINE])
        elif words:
            break
    return found


def parse(line: str) -> Command:
    """The command in a line.

    Raises:
        CommandUnclear: it is none; the message says what is wrong.
    """
    name, *rest = line.split()[1:] or [""]
    match name.lower():
        case "run" | "approve" as known:
            if len(rest) > 1:
                raise CommandUnclear(f"`{known}` takes at most a SHA")
            return Command(known, sha=_sha(rest[0]) if rest else None)
        case "rerun" | "cancel" | "help" as known:
            if rest:
                raise CommandUnclear(f"`{known}` takes nothing behind it")
            return Command(known)
        case "baseline":
            if len(rest) != 1:
                raise CommandUnclear("`baseline` needs the SHA of one commit of the base branch")
            return Command("baseline", sha=_sha(rest[0]))
        case "accept":
            if len(rest) < 2:
                raise CommandUnclear("`accept` needs the limit's key and a reason: `accept dq_error_ceiling REASON`")
            backend, _, limit_key = rest[0].rpartition("/")
            return Command("accept", backend=backend, limit_key=limit_key, reason=" ".join(rest[1:]))
        case "":
            raise CommandUnclear("there is no command behind it")
        case _:
            raise CommandUnclear(f"there is no command {name[:40]!r}")


def _sha(text: str) -> str:
    if not SHA.fullmatch(text.lower()):
        raise CommandUnclear(f"{text[:70]!r} is no SHA: 7 to 64 hexadecimal digits")
    return text.lower()


def help_table() -> str:
    """The commands as a table in Markdown."""
    return "\n".join(
        ["| comment | what it does |", "|---|---|", *(f"| `{PREFIX} {usage}` | {does} |" for usage, does in HELP)]
    )
