"""Where uploaded files lie: named by their content hash, and there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path
from types import TracebackType

from gprojci_service.errors import InvalidRequest, PayloadTooLarge, ServiceError
from gprojci_suite.contract import input_file, tensor_file
from gprojci_suite.contract.input_file import InputFile
from gprojci_suite.contract.tensor_file import MalformedFile

STALE_SECONDS = 86_400.0
"""Age from which an unfinished upload belongs to a server that was killed."""


class InputInvalid(InvalidRequest):
    """The file is not an input set; the message says why."""


class StorageFailed(ServiceError):
    """The service could not write the file."""

    status = 507


def path_of(directory: Path, content_hash: str) -> Path:
    """Where the file of that content lies."""
    digest = content_hash.removeprefix("sha256:")
    return directory / digest[:2] / f"{digest}{input_file.SUFFIX}"


class Incoming:
    """A file on its way in. It is checked as it comes, and gone at the end of the `with` unless it was kept.

    Only the header is ever in memory. The content hash needs the tensors in canonical order, which a file need not
    have, so it is computed over the finished file, in pieces.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory, self.limit = directory, limit
        self.length = 0
        self._beginning = bytearray()
        self._found: InputFile | None = None
        self._kept = False

    def __enter__(self) -> Incoming:
        folder = self.directory / "incoming"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _remove_stale(folder)
            self.path = folder / uuid.uuid4().hex
            self._file = self.path.open("xb")
        except OSError as error:
            raise _failed(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # a full disk, which `write` or `finish` has told of already
            self._file.close()
        if not self._kept:
            self.path.unlink(missing_ok=True)

    def write(self, chunk: bytes) -> None:
        """Takes the next bytes.

        Raises:
            PayloadTooLarge: the file is longer than the limit, by its length or by what its header promises.
            InputInvalid: the header is not that of an input set, or more bytes come than it promises.
            StorageFailed: the disk does not take it.
        """
        self.length += len(chunk)
        if self.length > self.limit:
            raise PayloadTooLarge(f"the input set is larger than {self.limit} bytes (GPROJCI_MAX_INPUT_BYTES)")
        try:
            if self._found is None:
                self._look(chunk)
            if self._found is not None and self.length > self._found.file_bytes:
                raise MalformedFile(f"{self.length - self._found.file_bytes} bytes and more belong to no tensor")
            self._file.write(chunk)
        except MalformedFile as error:
            raise InputInvalid(str(error)) from error
        except OSError as error:
            raise _failed(error) from error

    def _look(self, chunk: bytes) -> None:
        """Reads the header once it is there; until then its bytes are kept, a megabyte at most and this chunk."""
        self._beginning += chunk
        if len(self._beginning) < 8:
            return
        needed = tensor_file.data_start(bytes(self._beginning[:8]))
        if len(self._beginning) < needed:
            return
        self._found = input_file.describe(tensor_file.parse(bytes(self._beginning[:needed])))
        self._beginning.clear()
        if self._found.file_bytes > self.limit:
            raise PayloadTooLarge(
                f"its header promises {self._found.file_bytes} bytes, more than {self.limit} (GPROJCI_MAX_INPUT_BYTES)"
            )

    def finish(self) -> tuple[InputFile, str]:
        """The description and content hash of the file that has come, once it is safely on the disk.

        Raises:
            InputInvalid: it is truncated, or holds NaN or Inf.
            StorageFailed: the disk does not take it.
        """
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            return input_file.check(self.path)
        except MalformedFile as error:
            raise InputInvalid(str(error)) from error
        except OSError as error:
            raise _failed(error) from error

    def keep(self, content_hash: str) -> None:
        """Puts the file where its content belongs, in one step; raises StorageFailed."""
        target = path_of(self.directory, content_hash)
        try:
            target.parent.mkdir(exist_ok=True)
            self.path.replace(target)
            self._kept = True
            for folder in (target.parent, self.directory):
                _sync(folder)
        except OSError as error:
            raise _failed(error) from error


def remove(directory: Path, content_hash: str) -> None:
    """Removes a file; one that is gone already does not matter."""
    path_of(directory, content_hash).unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Has the disk remember a folder's entries."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_stale(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another upload removes it at this moment
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()


def _failed(error: OSError) -> StorageFailed:
    return StorageFailed(f"the service cannot keep the file: {error.strerror}; see GPROJCI_UPLOAD_DIR")
