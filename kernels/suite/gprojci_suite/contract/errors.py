"""The two ways in which a document from outside can be wrong."""

from collections.abc import Sequence
from dataclasses import dataclass


class ContractError(ValueError):
    """A spec or report breaks the contract.

    Attributes:
        path: where, as a JSON path such as ``$.accuracy.slices[3].tensor``.
        problem: what is wrong there.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a manifest."""

    problem: str
    """What is wrong, naming the key."""
    line: int | None = None
    """Line of the file, from 1; None where no single line is at fault."""
    column: int | None = None
    """Column in that line, from 1."""

    def __str__(self) -> str:
        where = f"line {self.line}" if self.column is None else f"line {self.line}, column {self.column}"
        return self.problem if self.line is None else f"{where}: {self.problem}"


class ManifestError(ValueError):
    """A ``gprojci.toml`` cannot be used.

    Attributes:
        problems: everything that is wrong, in the order of the file; at least one.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)

    @property
    def line(self) -> int | None:
        """Line of the first problem."""
        return self.problems[0].line
