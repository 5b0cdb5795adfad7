"""Who is measured on what: the backends of a session, each with its process, and the cases."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gprojci_suite import clock
from gprojci_suite.contract.timing import ClockCheck
from gprojci_suite.contract.vocabulary import Revision, Role, Status
from gprojci_suite.inputs import LayerTensors
from gprojci_suite.inputs.sets import DTYPES
from gprojci_suite.process import BackendProcess


@dataclass(frozen=True)
class Launch:
    """How one backend process is started: a peer of the ruler by name, or a subject by `entry`.

    Attributes:
        backend: name in the report.
        revision: head, base or ruler.
        role: subject, anchor or peer.
        python: interpreter.
        entry: `module:callable` of a subject; None for a peer.
        site: where the subject's module must lie; empty for anywhere.
        path: put first on the module search path; None for nothing.
        control: a second process of a head, for the A/A control.
        processes: how many of them time it; everything else is computed by the first.
    """

    backend: str
    revision: Revision
    role: Role
    python: str
    entry: str | None = None
    site: str = ""
    path: str | None = None
    control: bool = False
    processes: int = 1

    @property
    def label(self) -> str:
        """Name for people: `gproj@head`, `fa3@ruler`."""
        return f"{self.backend}@{self.revision}" + (" (control)" if self.control else "")


@dataclass(frozen=True)
class Case:
    """Tensors that backends compute or are timed on.

    Attributes:
        name: in reports and messages.
        tensors: q, k, v and do.
        causal: mask aligned to the bottom right.
        softmax_scale: factor of the logits.
        deterministic: ask those backends for it that take the keyword.
        normal: the tensors were drawn from the standard normal distribution.
    """

    name: str
    tensors: LayerTensors
    causal: bool
    softmax_scale: float
    deterministic: bool = False
    normal: bool = False

    def shape(self) -> dict[str, Any]:
        """The fields of `peers.Case`."""
        batch, heads, seq_q, head_dim = self.tensors.q.shape
        kv_heads, seq_k = self.tensors.k.shape[1], self.tensors.k.shape[2]
        sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq_q": seq_q, "seq_k": seq_k}
        return {**sizes, "head_dim": head_dim, "causal": self.causal, "dtype": DTYPES[self.tensors.q.dtype]}


class Member:
    """One backend of the session: its process, and its first failure if it has one.

    `unfinished` are those whose failure is that the session ended: what was measured of them before is as it should be.
    `peak_bytes` are the most that its process had on a GPU in its first call of the case at hand. Where it is timed in
    several processes, `further` are those after the first: members of their own, each with what it has loaded, whose
    failure is this one's.
    """

    def __init__(self, launch: Launch, directory: Path) -> None:
        self.launch = launch
        self.directory = directory
        self.process: BackendProcess | None = None
        self.status: Status = "ok"
        self.detail: str | None = None
        self.loaded: tuple[Path, bool] | None = None
        self.takes_deterministic = False
        self.start_seconds: float | None = None
        self.dtype = ""
        self.single_calls = clock.SingleCalls()
        self.single_steps = clock.SingleCalls()
        self.clock_checks: list[ClockCheck] = []
        self.further: list[Member] = []
        self.rested = False
        self.peak_bytes = 0
        self.unfinished = False

    @property
    def ok(self) -> bool:
        """Whether nothing has failed so far."""
        return self.status == "ok"

    @property
    def counts(self) -> bool:
        """Whether what was measured of it is as it should be: nothing has failed but the session's time."""
        return self.ok or self.unfinished

    @property
    def alive(self) -> bool:
        """Whether its process has neither failed nor ended by itself."""
        return self.process is not None and self.process.runs

    def fail(self, status: Status, detail: str) -> None:
        """Keep the first failure."""
        if self.ok:
            self.status, self.detail = status, detail

    @property
    def all(self) -> list["Member"]:
        """This member and its further processes."""
        return [self, *self.further]

    def stop(self) -> None:
        """End the process with all that it started, and the further ones; remove their files."""
        self.stop_further()
        if self.process is not None:
            self.process.close()
            self.process = None
            shutil.rmtree(self.directory, ignore_errors=True)

    def stop_further(self) -> None:
        """End all processes but the first."""
        for one in self.further:
            one.stop()
        self.further = []


def control_of(launch: Launch) -> Launch:
    """A second process of the same backend."""
    return replace(launch, control=True)
