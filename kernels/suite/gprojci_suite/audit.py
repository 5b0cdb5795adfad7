"""Is the result of a timed call that of its inputs? A backend that remembers results is fast and wrong.

The ruler draws inputs that no backend has seen, from a seed of the operating system, and hands them to a process as
those of one of its timed calls. Afterwards it names one (batch, key/value head) drawn in the same way, gets what that
very call returned for it, and compares with float64.
"""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gprojci_suite import reference
from gprojci_suite.contract.vocabulary import Device
from gprojci_suite.inputs import LayerTensors
from gprojci_suite.rotation import same_bits

TOLERANCE = 0.25
"""Relative error (Frobenius) of a slice. BF16 kernels have 0.5%, the results of other inputs 140%: this asks whose
result it is, not how exact; the accuracy suite does that."""

CPU_FLOPS = 4e10
"""Above this float64 is computed on the GPU, where there is one: two seconds of two CPU cores."""

CACHED = "the result of a timed call is not that of its inputs (a cached result?)"


@dataclass(frozen=True)
class Audit:
    """Inputs of one timed call, and what it must return for one slice.

    Attributes:
        tensors: q, k, v and do of the whole call.
        batch: of the slice.
        kv_head: of the slice; the query heads that share it belong to it.
        expected: o, dq (1, group, seq_q, head_dim), dk, dv (1, 1, seq_k, head_dim) in float64, those that are compared.
    """

    tensors: LayerTensors
    batch: int
    kv_head: int
    expected: dict[str, Tensor]

    def inputs(self) -> dict[str, Tensor]:
        """q, k, v and do of the slice."""
        whole = {"q": self.tensors.q, "k": self.tensors.k, "v": self.tensors.v, "do": self.tensors.do}
        return {name: part_of(tensor, self.tensors, self.batch, self.kv_head) for name, tensor in whole.items()}

    def complaint(self, answered: Mapping[str, Tensor]) -> str | None:
        """What is wrong with the slice that was handed back: the four inputs and the four results of the call."""
        for name, tensor in self.inputs().items():
            if name not in answered or not same_bits(answered[name].to(tensor.dtype), tensor):
                return f"changed its input {name}"
        for name, wanted in self.expected.items():
            got = answered.get(name)
            if got is None or got.shape != wanted.shape:
                return f"{name} of a timed call is {'missing' if got is None else tuple(got.shape)}"
            # Below the smallest normal number a type has no relative precision left.
            floor = torch.finfo(self.tensors.q.dtype).tiny * wanted.numel() ** 0.5
            if not float((got.double() - wanted).norm()) <= TOLERANCE * float(wanted.norm()) + floor:
                return f"{CACHED}: {name}"
        return None


def draw(tensors: LayerTensors, *, causal: bool, softmax_scale: float, normal: bool, device: Device) -> Audit:
    """Inputs like those of a case, and one slice of their results.

    Args:
        tensors: of the case.
        causal: mask aligned to the bottom right.
        softmax_scale: factor of the logits.
        normal: the case is standard normal, and so are the drawn inputs; otherwise they are its tokens in another
            order, queries and keys by themselves. Then dq and dk are not compared: on captured inputs a backend may be
            a multiple of their norm away from float64, which is what this suite was made to show.
        device: where float64 may be computed when it is long.
    """
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "little"))
    if normal:
        parts = (tensors.q, tensors.k, tensors.v, tensors.do)
        drawn = LayerTensors(*(torch.randn(part.shape, generator=generator).to(part.dtype) for part in parts))
    else:
        rows, columns = (torch.randperm(part.shape[2], generator=generator) for part in (tensors.q, tensors.k))
        drawn = replace(
            tensors,
            q=tensors.q[:, :, rows],
            k=tensors.k[:, :, columns],
            v=tensors.v[:, :, columns],
            do=tensors.do[:, :, rows],
        )
    audit = Audit(drawn, secrets.randbelow(drawn.k.shape[0]), secrets.randbelow(drawn.k.shape[1]), {})
    inputs = audit.inputs()
    flops = 14.0 * inputs["q"].shape[1] * inputs["q"].shape[2] * inputs["k"].shape[2] * inputs["q"].shape[3]
    where = device if flops > CPU_FLOPS else "cpu"
    found = reference.attention(
        *(tensor.to(where) for tensor in inputs.values()), causal=causal, softmax_scale=softmax_scale
    )
    compared = {"o": found.o, "dv": found.dv, **({"dq": found.dq, "dk": found.dk} if normal else {})}
    return replace(audit, expected={name: tensor.cpu() for name, tensor in compared.items()})


def part_of(tensor: Tensor, tensors: LayerTensors, batch: int, kv_head: int) -> Tensor:
    """The heads of one key/value head: (1, 1 or group, seq, head_dim)."""
    group = tensor.shape[1] // tensors.k.shape[1]
    return tensor[batch : batch + 1, kv_head * group : (kv_head + 1) * group]
