"""Errors to expect of a kernel by emulating its rounding, in this process and without the kernel."""

from collections.abc import Mapping

import torch
from torch import Tensor

from gprojci_suite import accuracy, peers
from gprojci_suite.contract.report import Slice
from gprojci_suite.inputs import InputSet
from gprojci_suite.reference import AttentionResult


def names() -> list[str]:
    """Peers that round in plain torch where a kernel does."""
    return [name for name in peers.names() if name.startswith("emulated-")]


def errors(backend: str, item: InputSet, references: Mapping[str, AttentionResult]) -> list[Slice]:
    """Errors of every tensor and slice of a set by emulating `backend`, on the device of the tensors.

    Args:
        backend: one of `names()`.
        item: the input set.
        references: float64 results by layer, as `accuracy.references` gives them.
    """
    results = {layer: _results(backend, item, layer) for layer in item.layers}
    return accuracy.slices(backend, "ruler", item.name, results, references)


def dq_error_by_head(backend: str, item: InputSet, layer: str) -> dict[int, float]:
    """Relative dq error of each query head of one layer, the largest over the batch; zero where dq vanishes."""
    one = InputSet(item.name, {layer: item.layers[layer]}, item.causal, item.softmax_scale, {})
    found: dict[int, float] = {}
    for entry in errors(backend, one, accuracy.references(one)):
        if entry.tensor == "dq":
            # In a head without a gradient the relative error means nothing.
            found[entry.head] = max(found.get(entry.head, 0.0), 0.0 if entry.vanishing else entry.rel_err)
    return found


def _results(backend: str, item: InputSet, layer: str) -> dict[str, Tensor]:
    tensors = item.layers[layer]
    with torch.enable_grad():
        q, k, v = (tensor.detach().requires_grad_() for tensor in (tensors.q, tensors.k, tensors.v))
        o = peers.get(backend).attention(q, k, v, causal=item.causal, softmax_scale=item.softmax_scale)
        dq, dk, dv = torch.autograd.grad(o, (q, k, v), tensors.do)
    return {"o": o.detach(), "dq": dq, "dk": dk, "dv": dv}
