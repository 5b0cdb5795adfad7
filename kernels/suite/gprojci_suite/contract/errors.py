"""The two ways in which a document from outside can be wrong."""


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


class ManifestError(ValueError):
    """A ``gprojci.toml`` cannot be used.

    Attributes:
        problem: what is wrong, naming the key.
        line: the line of the file (from 1), or None where no single line is at fault.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {problem}" if line is not None else problem)
        self.problem = problem
        self.line = line
