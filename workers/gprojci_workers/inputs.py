"""Input sets that the ruler does not bundle: fetched from the service, kept by content hash, linked for one attempt."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gprojci_suite.contract import input_file
from gprojci_suite.contract.tensor_file import MalformedFile
from gprojci_workers.api import Api, ServiceUnreachable
from gprojci_workers.build import ruler_facts
from gprojci_workers.failure import AttemptFailed
from gprojci_workers.settings import Settings

logger = logging.getLogger(__name__)

PATIENCE = 300.0
UNUSED_SECONDS = 7 * 86_400.0
"""How long a file that no attempt used stays in the cache."""


class Inputs:
    """The directory of further input sets that one attempt's ruler is given."""

    def __init__(
        self, settings: Settings, api: Api, scratch: Path, log: Callable[[str], None], stop: Callable[[], bool]
    ) -> None:
        self.settings, self.api, self.log, self.stop = settings, api, log, stop
        self.cache = settings.cache_dir / "inputs"
        self._links = scratch / "inputs"

    def hashes(self, names: Iterable[str]) -> dict[str, str]:
        """Content hashes of those input sets that the ruler does not bundle, by name: a host's own file may change."""
        found = {}
        for name in names:
            path = Path(name) if name.endswith(input_file.SUFFIX) else None
            if path is None and self.directory is not None:
                path = self.directory / f"{name.removeprefix('sha256:')}{input_file.SUFFIX}"
            if path is not None and path.is_file():
                found[name] = input_file.check(path)[1]
        return found

    @property
    def directory(self) -> Path | None:
        """Where the ruler finds them; the host's own directory where nothing had to be fetched."""
        return self._links if self._links.is_dir() else self.settings.input_dir

    def files(self) -> list[Path]:
        """Where the content of all of them lies, links followed."""
        directory = self.directory
        return [] if directory is None else [directory, *(link.resolve() for link in directory.iterdir())]

    def provide(self, names: Iterable[str]) -> None:
        """Fetches those of the names that neither the ruler nor the host's input directory has.

        Raises:
            AttemptFailed: `build_error` for a name that nobody knows; `lost_worker` where the service does not deliver.
            AttemptCancelled: the service no longer wants the attempt.
        """
        for name in names:
            if not self._is_here(name):
                self._fetch(name)

    def _is_here(self, name: str) -> bool:
        if name.startswith("synthetic:") or name.endswith(input_file.SUFFIX):
            return True
        if name in ruler_facts(self.settings.ruler_python)["inputs"]:
            return True
        own = self.settings.input_dir
        return own is not None and (own / f"{name}{input_file.SUFFIX}").is_file()

    def _fetch(self, name: str) -> None:
        by_hash = re.fullmatch(r"sha256:[0-9a-f]{64}", name) is not None
        if not by_hash and re.fullmatch(input_file.NAME, name) is None:
            raise AttemptFailed("build_error", f"{name!r} cannot be the name of an input set")
        try:
            found = self.api.input_set(name, patience=PATIENCE)
            if found is None and by_hash:
                return  # the ruler may bundle it, and knows its sets by hash
            if found is None:
                raise AttemptFailed(
                    "build_error",
                    f"gprojci.toml names the input set {name}, which neither ruler nor host has and nobody has "
                    f"uploaded to the service; `gprojci inputs upload FILE --name {name}` does it",
                )
            path = self._cached(found)
        except ServiceUnreachable as error:
            raise AttemptFailed("lost_worker", f"the input set {name} could not be fetched: {error}") from error
        self._link(path.stem if by_hash else name, path)

    def _cached(self, found: dict[str, Any]) -> Path:
        """The file in the cache, checked; a missing or damaged one is fetched (again)."""
        content_hash = str(found["content_hash"])
        path = self.cache / f"{content_hash.removeprefix('sha256:')}{input_file.SUFFIX}"
        self._prune()
        if path.exists() and self._is_right(path, content_hash):
            path.touch()
            return path
        self.cache.mkdir(parents=True, exist_ok=True)
        self.log(f"fetching the input set {found['name']}, {found['uploaded']['size_bytes']} bytes\n")
        coming = self.cache / f"coming-{uuid.uuid4().hex}"
        try:
            self.api.download(content_hash, coming, patience=PATIENCE, should_stop=self.stop)
            if not self._is_right(coming, content_hash):
                raise AttemptFailed("lost_worker", f"the file of {found['name']} is not {content_hash} as it arrived")
            coming.replace(path)
        finally:
            coming.unlink(missing_ok=True)
        return path

    @staticmethod
    def _is_right(path: Path, content_hash: str) -> bool:
        try:
            return input_file.check(path)[1] == content_hash
        except MalformedFile as error:
            logger.warning("%s: %s", path, error)
            return False

    def _link(self, stem: str, path: Path) -> None:
        if not self._links.is_dir():
            self._links.mkdir()
            for own in self.settings.input_dir.glob(f"*{input_file.SUFFIX}") if self.settings.input_dir else ():
                (self._links / own.name).symlink_to(own.resolve())
        link = self._links / f"{stem}{input_file.SUFFIX}"
        if not link.is_symlink():
            link.symlink_to(path.resolve())

    def _prune(self) -> None:
        for path in self.cache.glob("*"):
            if time.time() - path.stat().st_mtime > UNUSED_SECONDS:
                path.unlink(missing_ok=True)
