"""Finds an input set: bundled by name, in a directory, at a path, by content hash, or synthetic."""

import re
from pathlib import Path

from gprojci_suite.contract import bundled
from gprojci_suite.contract.input_file import NAME, SUFFIX
from gprojci_suite.contract.tensor_file import MalformedFile
from gprojci_suite.inputs import files, synthetic
from gprojci_suite.inputs.sets import InputError, InputSet


def load(name: str, directory: Path | None = None) -> InputSet:
    """The input set called `name`.

    Args:
        name: a bundled name, the name of a file NAME.safetensors in `directory`, a path that ends in .safetensors,
            `sha256:…` (the content hash of a bundled set or of a file in `directory`), or `synthetic:KIND?parameters`.
        directory: where further input sets lie.

    Raises:
        InputError: when there is no such set or it cannot be used.
    """
    if name.startswith("synthetic:"):
        return synthetic.make(name)
    if name.startswith("sha256:"):
        return _by_hash(name, directory)
    if name in bundled.names():
        return _bundled(name, name)
    if name.endswith(SUFFIX):
        return files.read(Path(name), name)
    if directory is not None and re.fullmatch(NAME, name):
        path = directory / f"{name}{SUFFIX}"
        if path.exists():
            return files.read(path, name)
    known = ", ".join([*bundled.names(), "synthetic:offset", "synthetic:random"])
    raise InputError(f"{name}: no such input set; known: {known}, a path to a {SUFFIX} file, or sha256:HASH")


def _bundled(stem: str, name: str) -> InputSet:
    try:
        data = bundled.read(stem)
    except MalformedFile as error:
        raise InputError(f"{name}: {error}") from error
    return files.decode(data, name)


def _by_hash(name: str, directory: Path | None) -> InputSet:
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", name):
        raise InputError(f"{name}: a content hash is sha256: and 64 hexadecimal digits")
    paths = sorted(directory.glob(f"*{SUFFIX}")) if directory is not None else []
    # A file named by the hash is tried first; its content decides all the same.
    paths.sort(key=lambda path: path.stem != name.removeprefix("sha256:"))
    for path in paths:
        try:
            found = files.read(path, name)
        except InputError:
            continue  # An unreadable neighbour is not the set asked for.
        if found.content_hash() == name:
            return found
    for stem in bundled.names():
        found = _bundled(stem, name)
        if found.content_hash() == name:
            return found
    raise InputError(f"{name}: no bundled input set{' or file of ' + str(directory) if directory else ''} has it")
