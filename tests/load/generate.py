"""Fills an empty PostgreSQL database with a long history, by COPY and in one transaction: all of it or nothing.

    gprojci migrate
    python tests/load/generate.py postgresql+psycopg://… --commits 10000 --backends 12 --cases 40 --metrics 6

The tables are those that the migrations made. For the time of the load the largest one, `sample`, is without its
indexes, which are made again in the same transaction from the database's own definitions, and foreign keys are not
looked up for each row (the numbers are right by construction); the latter needs a superuser.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import psycopg
from bodies import POLICY, Bodies, text
from psycopg import sql
from shape import HARDWARE, RULER, Key, Shape, Values
from sqlalchemy import make_url

from gprojci_service.database import Database
from gprojci_service.models.regression import REGRESSION_STATES
from gprojci_service.queue import Queue
from gprojci_service.regressions import kept_steps

PROJECT = "gproj-ci/gproj"
OPEN_PULL_REQUESTS = 30
WAITING = {"queued": 5, "running": 1, "awaiting_approval": 2, "cancelled": 20}
_AUTHORS = ("Ada Lovelace", "Grace Hopper", "Barbara Liskov", "Edsger Dijkstra", "Leslie Lamport", "Frances Allen")
_VERBS = ("Fuse", "Tile", "Unroll", "Reorder", "Document", "Simplify", "Split", "Pipeline")
_THINGS = ("the backward pass", "the projection", "the softmax", "the epilogue", "the loads of K", "the row sums")
_EPOCH = datetime.fromisoformat("2000-01-01T00:00:00+00:00")  # PostgreSQL counts microseconds from here
_TOOK = timedelta(seconds=168)
_BETWEEN_REGRESSIONS = 10  # commits
_SERIES_OF_A_REGRESSION = 3


class NotEmpty(Exception):
    """The database has projects already: a history is made once, in a database of its own."""


def generate(url: str, shape: Shape) -> None:
    """Makes the history in the migrated, empty database behind a SQLAlchemy or libpq URL.

    Raises:
        NotEmpty: there is a project already.
    """
    with psycopg.connect(_conninfo(url)) as connection, connection.cursor() as cursor:
        if cursor.execute("SELECT EXISTS (SELECT FROM project)").fetchone() == (True,):
            raise NotEmpty("the database has projects already; make an empty one and `gprojci migrate` it")
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("SET LOCAL maintenance_work_mem = '1GB'")
        definitions = _drop_indexes(cursor, "sample")
        _History(shape).write(cursor)
        for definition in definitions:
            cursor.execute(definition)
        _continue_numbers(cursor)
    with psycopg.connect(_conninfo(url), autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
    _keep_steps(url)


def _keep_steps(url: str) -> None:
    """Has the service look at the curves, as it does after each result."""
    address = make_url(url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    database = Database(address, Queue("redis://127.0.0.1:1/0"))
    kept_steps.keep(database, 1)
    database.close()


class _History:
    """Writes every table of a history. Commit, job, attempt, report and verdict of one place share their number."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.bodies = shape, Bodies(shape)

    def write(self, cursor: psycopg.Cursor[Any]) -> None:
        shape = self.shape
        begin = shape.moment(0)
        _copy(
            cursor,
            "project",
            [
                {"id": 1, "name": PROJECT, "clone_url": "file:///gproj.git", "created_at": begin}
                | {"html_url": "https://github.com/gproj-ci/gproj", "default_branch": "main", "private": False}
            ],
        )
        _copy(cursor, "worker", self._workers())
        _copy(cursor, "input_set", self._input_sets())
        _copy(cursor, "series", self._series())
        _copy(cursor, "commit", map(self._commit, range(shape.commits)))
        _copy(cursor, "pull_request", self._pull_requests())
        _copy(cursor, "job", self._jobs())
        _copy(cursor, "attempt", map(self._attempt, range(shape.commits)))
        _copy(cursor, "build", (row for commit in range(shape.commits) for row in self._builds(commit)))
        _copy(cursor, "github_report", (row for commit in range(shape.commits) for row in self._told(commit)))
        _copy(cursor, "log_chunk", map(self._log, range(max(0, shape.commits - shape.full_reports), shape.commits)))
        _copy_samples(cursor, shape, Values(shape))
        _copy(cursor, "report", self._reports(Values(shape)))
        _copy(cursor, "verdict", self._verdicts(Values(shape)))
        places = range(_BETWEEN_REGRESSIONS, shape.commits, _BETWEEN_REGRESSIONS)
        _copy(cursor, "regression", (self._regression(*entry) for entry in enumerate(places, 1)))
        _copy(cursor, "regression_series", (row for place in places for row in self._regression_series(place)))
        _copy(cursor, "regression_event", (self._regression_event(*entry) for entry in enumerate(places, 1)))

    def _workers(self) -> Iterator[dict[str, Any]]:
        for number in range(1, 5):
            yield {"id": number, "name": f"h200-{number}", "hardware": HARDWARE, "device": "cuda"} | {
                "device_name": "NVIDIA H200",
                "boot_id": f"boot-{number}",
                "environment": text({"python": "3.12.3", "torch": "2.11.0+cu130"}),
                "last_seen_at": self.shape.moment(self.shape.commits),
                "created_at": self.shape.moment(0),
            }

    def _input_sets(self) -> Iterator[dict[str, Any]]:
        for number, name in enumerate(self.shape.inputs, 1):
            entry = self.bodies.input(name)
            seen = {"first_seen_at": self.shape.moment(0), "last_seen_at": self.shape.moment(self.shape.commits)}
            row = {"id": number, "content_hash": entry["content_hash"], "name": name, "description": text(entry)}
            yield row | seen

    def _series(self) -> Iterator[dict[str, Any]]:
        for number, key in enumerate(self.shape.keys, 1):
            row = {"id": number, "project_id": 1, "backend": key.backend, "case": key.case, "metric": key.metric}
            more = {"hardware": HARDWARE, "ruler_revision": RULER, "created_at": self.shape.moment(0)}
            yield row | {"unit": key.unit} | more

    def _commit(self, commit: int) -> dict[str, Any]:
        base, author = self.shape.base(commit), _AUTHORS[commit * 7 % len(_AUTHORS)]
        message = f"{_VERBS[commit % len(_VERBS)]} {_THINGS[commit * 5 % len(_THINGS)]} (#{commit})"
        return {
            "id": commit + 1,
            "project_id": 1,
            "sha": self.shape.sha(commit),
            "message": f"{message}\n\nMeasured on four layers; see the job.",
            "author_name": author,
            "author_email": f"{author.partition(' ')[0].lower()}@example.org",
            "authored_at": self.shape.moment(commit),
            "parents": text([] if base is None else [self.shape.sha(base)]),
            "created_at": self.shape.moment(commit),
        }

    def _pull_requests(self) -> Iterator[dict[str, Any]]:
        heads = [commit for commit in range(self.shape.commits) if self.shape.is_pull_request(commit)]
        for number, commit in enumerate(heads, 1):
            base = self.shape.base(commit)
            yield {
                "id": number,
                "project_id": 1,
                "number": number,
                "title": f"{_VERBS[number % len(_VERBS)]} {_THINGS[number % len(_THINGS)]}",
                "author_login": "ada",
                "state": "open" if number > len(heads) - OPEN_PULL_REQUESTS else "closed",
                "draft": False,
                "from_fork": False,
                "head_sha": self.shape.sha(commit),
                "base_sha": self.shape.sha(base or 0),
                "head_ref": f"topic-{number}",
                "base_ref": "main",
                "html_url": f"https://github.com/gproj-ci/gproj/pull/{number}",
                "created_at": self.shape.moment(commit),
                "updated_at": self.shape.moment(commit),
            }

    def _job(self, number: int, commit: int, state: str) -> dict[str, Any]:
        base, moment = self.shape.base(commit), self.shape.moment(commit)
        pull = (commit + 1) // 10 if self.shape.is_pull_request(commit) else None
        begun = state in ("finished", "running")
        return {
            "id": number,
            "project_id": 1,
            "kind": "push" if pull is None else "pull_request",
            "dedup_key": f"{commit}/{number}",
            "head_sha": self.shape.sha(commit),
            "base_sha": None if base is None else self.shape.sha(base),
            "merge_base_sha": None if base is None else self.shape.sha(base),
            "ref": "main" if pull is None else f"topic-{pull}",
            "pull_request_id": pull,
            "hardware": HARDWARE,
            "state": state,
            "created_at": moment,
            "started_at": moment + timedelta(seconds=4) if begun else None,
            "finished_at": moment + _TOOK if state == "finished" else None,
        }

    def _jobs(self) -> Iterator[dict[str, Any]]:
        for commit in range(self.shape.commits):
            yield self._job(commit + 1, commit, "finished")
        number = self.shape.commits
        for state, count in WAITING.items():
            for _ in range(count):
                number += 1
                yield self._job(number, self.shape.commits - 1 - number % min(50, self.shape.commits), state)

    def _attempt(self, commit: int) -> dict[str, Any]:
        moment = self.shape.moment(commit)
        steps = [
            {"name": name, "started_at": moment.isoformat(), "seconds": seconds, "status": "ok"}
            for name, seconds in (("fetch", 0.8), ("build", 6.4), ("run", 160.0), ("report", 0.1))
        ]
        return {
            "id": commit + 1,
            "job_id": commit + 1,
            "worker_id": commit % 4 + 1,
            "number": 1,
            "claim_id": f"claim-{commit}",
            "boot_id": f"boot-{commit % 4 + 1}",
            "state": "reported",
            "steps": text(steps),
            "lease_expires_at": moment + _TOOK,
            "deadline_at": moment + timedelta(hours=1),
            "heartbeat_at": moment + _TOOK,
            "started_at": moment,
            "finished_at": moment + _TOOK,
        }

    def _builds(self, commit: int) -> Iterator[dict[str, Any]]:
        revisions = ("head",) if self.shape.base(commit) is None else ("head", "base")
        for place, revision in enumerate(revisions):
            row = {"id": 2 * commit + place + 1, "attempt_id": commit + 1, "revision": revision, "status": "ok"}
            more = {"key": f"{revision}-{self.shape.sha(commit)[:12]}", "reused": revision == "base", "log_tail": ""}
            yield row | more | {"seconds": 3.2, "created_at": self.shape.moment(commit)}

    def _told(self, commit: int) -> Iterator[dict[str, Any]]:
        for place, kind in enumerate(("commit_status", "check_run")):
            payload = {"state": "success", "description": "every limit holds", "context": "gprojci"}
            sent = {"state": "sent", "attempts": 1, "created_at": self.shape.moment(commit)}
            row = {"id": 2 * commit + place + 1, "job_id": commit + 1, "kind": kind, "phase": "decided"}
            path = f"/repos/{PROJECT}/statuses/{self.shape.sha(commit)}"
            yield row | sent | {"method": "POST", "path": path, "payload": text(payload)}

    def _log(self, commit: int) -> dict[str, Any]:
        lines = [f"measuring {key.backend} on {key.case}: {key.metric}" for key in self.shape.keys[:400]]
        row = {"id": commit + 1, "attempt_id": commit + 1, "sequence": 0, "text": "\n".join(lines) + "\n"}
        return row | {"received_at": self.shape.moment(commit)}

    def _reports(self, values: Values) -> Iterator[dict[str, Any]]:
        for commit in range(self.shape.commits):
            measured = values.of_next()
            whole = commit >= self.shape.commits - self.shape.full_reports
            yield {
                "id": commit + 1,
                "job_id": commit + 1,
                "attempt_id": commit + 1,
                "fencing_token": 1,
                "accepted": True,
                "schema_version": 1,
                "body": text(self.bodies.whole(commit, measured) if whole else self.bodies.facts(commit)),
                "received_at": self.shape.moment(commit) + _TOOK,
            }

    def _regression(self, number: int, commit: int) -> dict[str, Any]:
        moment = self.shape.moment(commit)
        row = {"id": number, "project_id": 1, "last_good_id": commit, "first_bad_id": commit + 1, "job_id": commit + 1}
        state = REGRESSION_STATES[number % len(REGRESSION_STATES)]
        return row | {"state": state, "created_at": moment, "updated_at": moment}

    def _regression_series(self, commit: int) -> Iterator[dict[str, Any]]:
        count = len(self.shape.keys)
        for place in range(_SERIES_OF_A_REGRESSION):
            row = {"id": commit * _SERIES_OF_A_REGRESSION + place + 1, "regression_id": commit // _BETWEEN_REGRESSIONS}
            level = {"before": 1.0, "after": 1.05 + place / 100, "noise": 0.01, "limit": None}
            where = {"series_id": (commit * 7 + place) % count + 1, "last_good_id": commit, "first_bad_id": commit + 1}
            yield row | where | level | {"created_at": self.shape.moment(commit)}

    def _regression_event(self, number: int, commit: int) -> dict[str, Any]:
        row = {"id": number, "regression_id": number, "kind": "opened", "after": "new", "author": "gprojci"}
        return row | {"created_at": self.shape.moment(commit)}

    def _verdicts(self, values: Values) -> Iterator[dict[str, Any]]:
        for commit in range(self.shape.commits):
            evidence = self.bodies.evidence(commit, values.of_next())
            failed = [row for row in evidence if row["verdict"] == "fail"]
            yield {
                "id": commit + 1,
                "job_id": commit + 1,
                "project_id": 1,
                "head_sha": self.shape.sha(commit),
                "verdict": "fail" if failed else "pass",
                "summary": failed[0]["message"][:140] if failed else "every limit holds",
                "evidence": text(evidence),
                "failed": text([[row["backend"], row["case"], row["limit_key"]] for row in failed]),
                "policy": text(POLICY),
                "decided_at": self.shape.moment(commit) + _TOOK,
            }


def _conninfo(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _copy(cursor: psycopg.Cursor[Any], table: str, rows: Iterable[dict[str, Any]]) -> None:
    """Copies rows that all have the same keys."""
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        return
    columns = sql.SQL(", ").join(map(sql.Identifier, first))
    with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), columns)) as copy:
        copy.write_row(tuple(first.values()))
        for row in iterator:
            copy.write_row(tuple(row.values()))


def _layout(revision: str, *, interval: bool) -> np.dtype[Any]:
    """A row of `sample` as COPY's binary format has it: the number of fields, then each one's length and value."""
    text_type = f"S{len(revision)}"
    fields: list[tuple[str, str]] = [("fields", ">i2")]
    columns = [("id", ">i8"), ("series_id", ">i8"), ("report_id", ">i8"), ("commit_id", ">i8"), ("revision", text_type)]
    columns += [("value", ">f8"), ("count", ">i4"), ("measured_at", ">i8")]
    for name, kind in [*columns, *([("low", ">f8"), ("high", ">f8")] if interval else [])]:
        fields += [(f"{name}_length", ">i4"), (name, kind)]
    return np.dtype(fields if interval else [*fields, ("low_length", ">i4"), ("high_length", ">i4")])


class _SampleRows:
    """The samples of one kind (whose they are, with an interval or without), as bytes for one commit after another."""

    def __init__(self, keys: tuple[Key, ...], revision: str, *, interval: bool) -> None:
        self.places = np.array(
            [n for n, key in enumerate(keys) if key.revision == revision and (key.unit == "ratio") == interval],
            dtype=int,
        )
        self._interval = interval
        rows = np.zeros(len(self.places), _layout(revision, interval=interval))
        rows["fields"] = 10
        for name in rows.dtype.names or ():
            if name.endswith("_length"):
                field = name.removesuffix("_length")
                rows[name] = rows.dtype[field].itemsize if field in (rows.dtype.names or ()) else -1  # -1 is NULL
        rows["series_id"], rows["revision"], rows["count"] = self.places + 1, revision.encode(), 20
        self._rows = rows

    def of(self, commit: int, values: np.ndarray, moment: int) -> bytes:
        """The rows of a commit."""
        rows = self._rows
        rows["id"] = commit * len(values) + self.places + 1
        rows["report_id"] = rows["commit_id"] = commit + 1
        rows["value"], rows["measured_at"] = values[self.places], moment
        if self._interval:
            rows["low"], rows["high"] = rows["value"] * 0.995, rows["value"] * 1.005
        return rows.tobytes()


def _copy_samples(cursor: psycopg.Cursor[Any], shape: Shape, values: Values) -> None:
    kinds = [_SampleRows(shape.keys, name, interval=it) for name in ("head", "ruler") for it in (False, True)]
    cursor.execute("TRUNCATE sample CASCADE")  # in this transaction, so that FREEZE may spare a later vacuum
    columns = "id, series_id, report_id, commit_id, revision, value, count, measured_at, low, high"
    with cursor.copy(f"COPY sample ({columns}) FROM STDIN (FORMAT BINARY, FREEZE)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        for commit in range(shape.commits):
            measured = values.of_next()
            moment = (shape.moment(commit) + _TOOK - _EPOCH) // timedelta(microseconds=1)
            for kind in kinds:
                copy.write(kind.of(commit, measured, moment))
        copy.write(b"\xff\xff")


def _drop_indexes(cursor: psycopg.Cursor[Any], table: str) -> list[str]:
    """Drops a table's indexes; returns the statements that make them again."""
    again, drops = [], []
    constraints = cursor.execute(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = %s::regclass AND contype IN ('p', 'u')",
        (table,),
    ).fetchall()
    for name, definition in constraints:
        drops.append(f'ALTER TABLE "{table}" DROP CONSTRAINT "{name}"')
        again.append(f'ALTER TABLE "{table}" ADD CONSTRAINT "{name}" {definition}')
    indexes = cursor.execute(
        "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = %s::regclass "
        "AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)",
        (table,),
    ).fetchall()
    for name, definition in indexes:
        drops.append(f"DROP INDEX {name}")
        again.append(definition)
    for statement in drops:
        cursor.execute(statement)  # type: ignore[call-overload]
    return again


def _continue_numbers(cursor: psycopg.Cursor[Any]) -> None:
    """Sets every sequence behind the highest number of its table."""
    tables = cursor.execute(
        "SELECT table_name FROM information_schema.columns "
        "WHERE table_schema = 'public' AND column_name = 'id' AND column_default LIKE 'nextval%'"
    ).fetchall()
    for (table,) in tables:
        cursor.execute(
            sql.SQL("SELECT setval(pg_get_serial_sequence({}, 'id'), coalesce(max(id), 0) + 1, false) FROM {}").format(
                sql.Literal(f'"{table}"'), sql.Identifier(table)
            )
        )


def sizes(parser: argparse.ArgumentParser) -> None:
    """Adds an option for every size of a shape."""
    for name, default in vars(Shape()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, metavar="N")


def main() -> int:
    """The command: says how long it took, or in one line what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of a migrated, empty PostgreSQL database")
    sizes(parser)
    options = vars(parser.parse_args())
    url, began = options.pop("url"), time.monotonic()
    try:
        shape = Shape(**options)
        generate(url, shape)
    except (ValueError, NotEmpty, psycopg.Error) as error:
        print(f"generate: {str(error).strip()}", file=sys.stderr)
        return 2
    print(f"{shape.samples:,} samples of {shape.commits:,} commits in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
