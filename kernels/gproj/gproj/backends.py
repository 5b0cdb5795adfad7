"""The backends, best first: which one a call takes, and why not the others. Nothing is imported before it is asked for.

A backend is a module with four functions:

    supported(case: Case) -> str | None       why it does not compute the case; None if it does
    keeps_rows(method: str) -> bool           whether `Saved.beside_o` and `Saved.strongest` are not empty
    forward(q, k, v, problem) -> Saved
    backward(grad, q, k, v, saved, problem) -> Gradients

What `Saved` and `Gradients` hold is the same for all (`problem.py`), and so are its strides, which torch.compile was
told before: those of torch.empty_like of q, k or v. A backward gets what its own forward saved.
"""

import importlib
import importlib.util
import warnings
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType

from gproj.arguments import UnsupportedInput
from gproj.problem import Case

AUTO = "auto"


@dataclass(frozen=True)
class Backend:
    """One line of the registry.

    Attributes:
        name: what callers write.
        module: imported when the backend is first considered.
        requires: top-level packages without which it is not considered, with ">=" and a version where one is needed.
        devices: device types on which "auto" considers it; elsewhere it must be named.
    """

    name: str
    module: str
    requires: tuple[str, ...]
    devices: frozenset[str]


BACKENDS = (
    Backend("hopper", "gproj.hopper", ("triton>=3.6", "cutlass", "quack", "flash_attn"), frozenset({"cuda"})),
    Backend("triton", "gproj.triton", ("triton>=3.6",), frozenset({"cuda"})),
    Backend("reference", "gproj.reference", (), frozenset({"cpu", "cuda"})),
)
NAMES = (AUTO, *(backend.name for backend in BACKENDS))


@dataclass(frozen=True)
class Explanation:
    """Which backend a call takes.

    Attributes:
        backend: its name.
        reasons: for every other backend, why it was not taken.
    """

    backend: str
    reasons: dict[str, str]

    def __str__(self) -> str:
        return "\n".join([f"{self.backend}: taken", *(f"{name}: {reason}" for name, reason in self.reasons.items())])


def explained(case: Case, backend: str) -> Explanation:
    """The backend that a call takes, and why not the others.

    Raises:
        UnsupportedInput: the named backend does not compute the case, or there is none of that name.
    """
    if backend not in NAMES:
        raise UnsupportedInput(f"backend must be one of {', '.join(NAMES)}, got {backend!r}")
    if backend != AUTO:
        reason = _refusal(_named(backend), case)
        if reason is not None:
            raise UnsupportedInput(f"backend {backend!r} does not compute this: {reason}")
        return Explanation(backend, {other.name: "another was named" for other in BACKENDS if other.name != backend})
    chosen, reasons = None, {}
    for candidate in BACKENDS:
        if chosen is not None:
            reasons[candidate.name] = f"{chosen} comes first"
        elif case.device.type not in candidate.devices and candidate.name != "reference":
            reasons[candidate.name] = f"on {case.device.type} it must be named"
        elif (reason := _refusal(candidate, case)) is not None:
            reasons[candidate.name] = reason
        else:
            chosen = candidate.name
    assert chosen is not None, "the reference refuses nothing"
    return Explanation(chosen, reasons)


@lru_cache(maxsize=4096)
def chosen_module(case: Case, backend: str) -> ModuleType:
    """The module of the backend that a call takes; a warning, once per case, where that is the slow reference on a GPU.

    Raises:
        UnsupportedInput: as `explained`.
    """
    explanation = explained(case, backend)
    if backend == AUTO and explanation.backend == "reference" and case.device.type == "cuda":
        warnings.warn(f"attention is computed by slow plain PyTorch:\n{explanation}", stacklevel=2)
    return _loaded(_named(explanation.backend).module)


def keeps_rows(case: Case, backend: str) -> bool:
    """Whether the backend that a call takes keeps more than o and the log-sum-exp; sizes of the case may be symbols.

    Raises:
        UnsupportedInput: as `explained`.
    """
    kept: bool = _loaded(_named(explained(case, backend).backend).module).keeps_rows(case.method)
    return kept


def _named(name: str) -> Backend:
    return next(backend for backend in BACKENDS if backend.name == name)


def _refusal(backend: Backend, case: Case) -> str | None:
    missing = _missing(backend)
    if missing is not None:
        return missing
    reason: str | None = _loaded(backend.module).supported(case)
    return reason


@cache
def _missing(backend: Backend) -> str | None:
    for requirement in backend.requires:
        name, _, least = requirement.partition(">=")
        if importlib.util.find_spec(name) is None:
            return f"the package {name} is not installed"
        if least and _release(version := _loaded(name).__version__) < _release(least):
            return f"needs {requirement}, installed is {version}"
    if importlib.util.find_spec(backend.module) is None:
        return f"{backend.module} is not part of this installation"
    return None


def _release(version: str) -> tuple[int, ...]:
    """The numbers that order releases: (3, 6) of "3.6.0+git1234"."""
    return tuple(int(number) for number in version.split(".")[:2])


@cache
def _loaded(module: str) -> ModuleType:
    return importlib.import_module(module)
