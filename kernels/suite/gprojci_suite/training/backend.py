"""The backend of a run as the attention of its model, and what a measured step sees of it."""

import functools
import os
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from gprojci_suite import identity, peers
from gprojci_suite.capture.watched_call import WatchedCall
from gprojci_suite.contract.training import TrainingModel
from gprojci_suite.entry import Refused, load_entry
from gprojci_suite.step_model import checked


class BackendAttention:
    """Calls a backend with what it takes; while `seen` is a dictionary, keeps the calls of a step by layer in it.

    Args:
        name: of a peer, or of what `entry` names.
        entry: `module:callable`, importable from the working directory; None for a peer.
        model: whose attention it is.
        batch: sequences of a step.
        device: cpu or cuda.

    Raises:
        Refused: when the backend cannot be loaded, or does not compute this.
    """

    def __init__(self, name: str, entry: str | None, model: TrainingModel, batch: int, device: str) -> None:
        self.device = device
        self.seen: dict[int, WatchedCall] | None = None
        self.input_dtype: torch.dtype | None = None
        head_dim = model.width // model.heads
        self.softmax_scale = head_dim**-0.5 / model.softmax_temperature
        self.revision: str | None = None
        if entry is not None:
            self._attention: Callable[..., Tensor] = load_entry(entry, "", os.getcwd())  # noqa: PTH109
            self.revision = identity.of_module(sys.modules[entry.partition(":")[0].partition(".")[0]])
            return
        peer = peers.get(name)
        case = peers.Case(batch, model.heads, model.heads, model.sequence, model.sequence, head_dim, True, "bfloat16")
        reason = peer.supported(case, device)
        if reason is not None:
            raise Refused("unsupported", reason)
        self._attention = peer.attention
        self.input_dtype = getattr(peer, "INPUT_DTYPE", None)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """o of q, k and v (batch, heads, sequence, head_dim), in their type; raises WrongAttention."""
        # The backend computes in the types it is given, not in those autocast would choose.
        with torch.autocast(self.device, enabled=False):
            given = [part if self.input_dtype is None else part.to(self.input_dtype) for part in (q, k, v)]
            o = checked(self.attend(*given), q)
        if self.seen is not None:
            self._keep(self.seen, layer, given, o)
        return o.to(q.dtype)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The backend itself, with mask and scale."""
        return self._attention(q, k, v, causal=True, softmax_scale=self.softmax_scale)

    def _keep(self, seen: dict[int, WatchedCall], layer: int, given: list[Tensor], o: Tensor) -> None:
        q, k, v = (part[:1].detach().clone() for part in given)
        record = seen[layer] = WatchedCall(layer, self.attend, True, self.softmax_scale, q, k, v)
        for name, tensor in (("dq", given[0]), ("dk", given[1]), ("do", o)):
            if tensor.requires_grad:
                tensor.register_hook(functools.partial(_keep_gradient, record, name))  # type: ignore[no-untyped-call]


def _keep_gradient(record: WatchedCall, name: str, gradient: Tensor) -> None:
    setattr(record, name, gradient[:1].detach().clone())
