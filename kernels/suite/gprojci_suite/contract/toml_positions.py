"""Where each key and list item of a TOML document stands; tomllib reads the values and keeps no positions."""

import re
import tomllib

Path = tuple[str | int, ...]
"""Keys from the document's root, with the index of each list item: `("gate", "rules", 0, "required")`."""

_SPACE = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\n#]*")
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\[\s\S])*?"""(?:"{0,2})'),
    re.compile(r"'''[\s\S]*?'''(?:'{0,2})"),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)


def positions(text: str) -> dict[Path, tuple[int, int]]:
    """Line and column, both from 1, of every table, key and list item of a document that tomllib reads.

    A table or key that several lines make up stands where it is named first.
    """
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.document()
    return scanner.found


class _Scanner:
    """Walks through a valid document; one that is not valid must not be given to it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[Path, tuple[int, int]] = {}
        self._lengths: dict[Path, int] = {}
        """How many tables each array of tables has so far."""
        self._line, self._line_start = 1, 0

    def document(self) -> None:
        table: Path = ()
        self._skip(_SPACE)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_SPACE)

    def _header(self) -> Path:
        here, is_array = self._here(), self.text.startswith("[[", self.at)
        self.at += 2 if is_array else 1
        keys, path = self._keys(), Path()
        self.at += 2 if is_array else 1
        for number, key in enumerate(keys, 1):
            path += (key,)
            self.found.setdefault(path, here)
            if number == len(keys) and is_array:
                self._lengths[path] = self._lengths.get(path, 0) + 1
            if path in self._lengths:
                path += (self._lengths[path] - 1,)
                self.found.setdefault(path, here)
        return path

    def _pair(self, table: Path) -> None:
        here, path = self._here(), table
        for key in self._keys():
            path += (key,)
            self.found.setdefault(path, here)
        self.at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip(_BLANK)
            if self.text[self.at] in "\"'":
                keys.append(str(tomllib.loads(f"key = {self._string()}")["key"]))
            else:
                keys.append(self._take(_BARE))
            self._skip(_BLANK)
            if self.text[self.at] != ".":
                return keys
            self.at += 1

    def _value(self, path: Path) -> None:
        opening = self.text[self.at]
        if opening in "\"'":
            self._string()
        elif opening in "[{":
            self.at += 1
            self._skip(_SPACE)
            index = 0
            while self.text[self.at] not in "]}":
                if opening == "{":
                    self._pair(path)
                else:
                    self.found[*path, index] = self._here()
                    self._value((*path, index))
                    index += 1
                self._skip(_SPACE)
                if self.text[self.at] == ",":
                    self.at += 1
                    self._skip(_SPACE)
            self.at += 1
        else:
            self._take(_SCALAR)

    def _string(self) -> str:
        return next(text for text in map(self._take, _STRINGS) if text)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match[0]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        self._take(pattern)

    def _here(self) -> tuple[int, int]:
        """Line and column of the present place, counted on from the last one asked for."""
        self._line += self.text.count("\n", self._line_start, self.at)
        start = self.text.rfind("\n", 0, self.at) + 1
        self._line_start = self.at
        return self._line, self.at - start + 1
