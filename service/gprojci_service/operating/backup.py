"""Backup and restore: the database by its own tools (pg_dump, pg_restore, SQLite's backup), uploads as files.

What else a service has can be made anew: the broker holds hints, workers hold caches. Its settings are the operator's.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import inspect

from gprojci_service import __version__
from gprojci_service.context import Context
from gprojci_service.errors import ConfigurationError
from gprojci_service.models import now
from gprojci_service.operating.service import newest_revision, schema_revision

MANIFEST = "backup.json"
DUMPS = {"postgresql": "database.dump", "sqlite": "database.sqlite"}


def backup(context: Context, directory: Path) -> dict[str, Any]:
    """Writes a backup of a running service into a new directory; returns its manifest.

    The database is a snapshot of one moment. Uploads are copied after it, so that none of its rows lacks its file.

    Raises:
        ConfigurationError: the directory is not empty, or a tool fails or is missing.
    """
    if directory.exists() and any(directory.iterdir()):
        raise ConfigurationError(f"{directory} is not empty; name a new directory")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    kind, source = _database(context)
    revision, dump = schema_revision(context), directory / DUMPS[kind]
    if kind == "postgresql":
        _tool("pg_dump", context, "--format=custom", "--no-owner", "--no-privileges", f"--file={dump}")
    else:
        with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(dump)) as copy:
            live.backup(copy)
    if context.settings.upload_dir.is_dir():
        shutil.copytree(context.settings.upload_dir, directory / "uploads")
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    manifest = {
        "version": __version__,
        "revision": revision,
        "database": kind,
        "created_at": now().isoformat(timespec="seconds"),
        "sha256": {path.relative_to(directory).as_posix(): _sha256(path) for path in files},
    }
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def restore(context: Context, directory: Path) -> dict[str, Any]:
    """Fills an empty database and the upload directory from a backup, and migrates it to this version's schema.

    Raises:
        ConfigurationError: the backup is damaged, of the other kind of database or of a newer version, the database is
            not empty, or a tool fails or is missing.
    """
    manifest = _checked(directory)
    kind, target = _database(context)
    if manifest["database"] != kind:
        raise ConfigurationError(f"{directory} is of {manifest['database']}, GPROJCI_DATABASE_URL of {kind}")
    if manifest["revision"] > newest_revision():
        raise ConfigurationError(
            f"{directory} has schema {manifest['revision']}, newer than {newest_revision()}: "
            f"restore it with version {manifest['version']}"
        )
    if kind == "sqlite":
        Path(target).parent.mkdir(parents=True, exist_ok=True)
    if inspect(context.database.engine).get_table_names():
        raise ConfigurationError("GPROJCI_DATABASE_URL: the database is not empty; make a new one to restore into")
    context.database.close()
    dump = directory / DUMPS[kind]
    if kind == "postgresql":
        strict = ("--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction")
        _tool("pg_restore", context, *strict, str(dump))
    else:
        with closing(sqlite3.connect(dump)) as copy, closing(sqlite3.connect(target)) as live:
            copy.backup(live)
    if (directory / "uploads").is_dir():
        shutil.copytree(directory / "uploads", context.settings.upload_dir, dirs_exist_ok=True)
    context.database.migrate()
    return manifest


def _database(context: Context) -> tuple[str, str]:
    """Its kind, and its name: with SQLite the path of its file."""
    url = context.database.engine.url
    return url.get_backend_name(), url.database or ""


def _checked(directory: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((directory / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{directory} is not a whole backup: {MANIFEST}: {error}") from error
    for name, expected in manifest["sha256"].items():
        path = directory / name
        if not path.is_file() or _sha256(path) != expected:
            raise ConfigurationError(f"{path} is missing or damaged; take another backup")
    return manifest


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tool(name: str, context: Context, *arguments: str) -> None:
    """Runs a tool of PostgreSQL on the database; the password goes by the environment, where `ps` does not show it."""
    if shutil.which(name) is None:
        raise ConfigurationError(f"{name} is not on the PATH; install PostgreSQL's client, no older than the server")
    url = context.database.engine.url.set(drivername="postgresql")
    environment = {**os.environ, **({"PGPASSWORD": str(url.password)} if url.password else {})}
    address = url.set(password=None).render_as_string(hide_password=False)
    command = [name, *arguments, f"--dbname={address}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConfigurationError(f"{name} failed: {done.stderr.strip()[-500:]}")
