"""What a backend's process says of the times it took, checked before anybody believes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gprojci_suite.contract.vocabulary import Pass
from gprojci_suite.cuda_timing import SPIN_CAP
from gprojci_suite.process import BackendFailure

FLUSH_LIMIT = 0.005
"""Most seconds before one forward and one backward pass to free what the last returned and to flush the cache."""
COVER_LIMIT = 2 * SPIN_CAP + FLUSH_LIMIT
"""The same with spins."""


def _not_an_answer() -> BackendFailure:
    """The failure of a process that said what `child` does not say."""
    return BackendFailure("runtime_error", "wrote into the channel to its parent")


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of one forward and one backward pass.

    On CUDA also the most bytes allocated during each, the seconds that the host took to enqueue each, and `cover`, the
    seconds for which the GPU flushed its cache and waited for the host before the two, and `late`, those by which the
    host took longer all the same.
    """

    forward: float
    backward: float
    forward_peak: int | None = None
    backward_peak: int | None = None
    forward_host: float | None = None
    backward_host: float | None = None
    cover: float = 0.0
    late: float = 0.0

    def peak(self, which: Pass) -> int | None:
        """Most bytes allocated during a pass; None on a CPU."""
        peaks = {"forward": (self.forward_peak,), "backward": (self.backward_peak,)}
        found = peaks.get(which, (self.forward_peak, self.backward_peak))
        return max((peak for peak in found if peak is not None), default=None)

    def host(self, which: Pass) -> float | None:
        """Seconds of the host to enqueue a pass; None on a CPU."""
        if self.forward_host is None or self.backward_host is None:
            return None
        each = {"forward": self.forward_host, "backward": self.backward_host}
        return each.get(which, self.forward_host + self.backward_host)

    @property
    def forward_backward(self) -> float:
        """Both passes together."""
        return self.forward + self.backward


@dataclass(frozen=True)
class TrainingStepTaken:
    """Seconds, loss and (on CUDA) most allocated bytes of one training step."""

    seconds: float
    loss: float
    peak_memory_bytes: int | None


def steps_of(answer: Mapping[str, Any], repeat: int) -> list[StepSeconds]:
    """The `repeat` steps of an answer; raises BackendFailure."""
    forward, backward = answer.get("forward"), answer.get("backward")
    if not (isinstance(forward, list) and isinstance(backward, list) and len(forward) == len(backward) == repeat):
        raise _not_an_answer()
    if not all(isinstance(seconds, float) and 0 < seconds < float("inf") for seconds in (*forward, *backward)):
        raise BackendFailure("wrong_result", "its clock stands still or runs backwards")
    further: list[list[Any]] = []
    kinds: dict[str, Any] = {"forward_peak": int | None, "backward_peak": int | None}
    kinds |= {"forward_host": float | None, "backward_host": float | None, "cover": float, "late": float}
    for name, kind in kinds.items():
        found = answer.get(name)
        if not (isinstance(found, list) and len(found) == repeat and all(isinstance(value, kind) for value in found)):
            raise _not_an_answer()
        if not all(value is None or 0 <= value < float("inf") for value in found):
            raise BackendFailure("wrong_result", "its clock stands still or runs backwards")
        further.append(found)
    return [StepSeconds(*parts) for parts in zip(forward, backward, *further, strict=True)]


@dataclass(frozen=True)
class Room:
    """Most bytes that a first call had reserved on the device, and the bytes that were free then; zeros on a CPU."""

    peak: int
    free: int


def room_of(answer: Mapping[str, Any]) -> Room:
    """What a first call says of the memory; raises BackendFailure."""
    peak, free = answer.get("peak"), answer.get("free")
    if not (type(peak) is int and type(free) is int and peak >= 0 and free >= 0):
        raise _not_an_answer()
    return Room(peak, free)


def dtype_of(answer: Mapping[str, Any]) -> str:
    """Element type of the tensors that were read; raises BackendFailure."""
    dtype = answer.get("dtype")
    if not isinstance(dtype, str):
        raise _not_an_answer()
    return dtype


def training_steps_of(answer: Mapping[str, Any], repeat: int) -> list[TrainingStepTaken]:
    """The `repeat` training steps of an answer; raises BackendFailure."""
    seconds, losses, peak = (answer.get(name) for name in ("seconds", "losses", "peak_memory_bytes"))
    if not (isinstance(seconds, list) and isinstance(losses, list) and len(seconds) == len(losses) == repeat):
        raise _not_an_answer()
    if not all(isinstance(value, float) for value in (*seconds, *losses)) or not isinstance(peak, int | None):
        raise _not_an_answer()
    if not all(0 < value < float("inf") for value in seconds):
        raise BackendFailure("wrong_result", "its clock stands still or runs backwards")
    return [TrainingStepTaken(value, loss, peak) for value, loss in zip(seconds, losses, strict=True)]


def cover_of(answer: Mapping[str, Any], repeat: int, limit: float) -> float:
    """Seconds for which the GPU flushed and waited beside `repeat` steps, of each no more than `limit`.

    It went by on the ruler's clock as well. Raises BackendFailure.
    """
    cover = answer.get("cover")
    if not (isinstance(cover, list) and len(cover) == repeat and all(isinstance(value, float) for value in cover)):
        raise _not_an_answer()
    if not all(0 <= value < float("inf") for value in cover):
        raise BackendFailure("wrong_result", "its clock stands still or runs backwards")
    return float(sum(min(value, limit) for value in cover))
