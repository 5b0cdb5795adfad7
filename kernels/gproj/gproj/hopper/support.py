"""Which calls the Hopper kernels compute; nothing of their libraries is imported here."""

from functools import cache
from importlib import metadata

import torch

from gproj.problem import GPROJ, ZEROSUM, Case

VERSION = "4.0.0b36"
"""Of flash-attn-4."""
HEAD_DIMS = (64, 96, 128, 192, 256)
ORDERED_HEAD_DIMS = (64, 96, 128, 192)
"""Those with room in shared memory for row sums beside dQ."""
METHODS = (GPROJ, ZEROSUM)
INDEX_BITS = 22
"""Of a key's index beside what names a row's second key."""
SHARE_STEPS = 63
"""Of the share of the first."""
BYTES = 16
"""What the copy engine reads at once."""


def supported(case: Case) -> str | None:
    """Why the kernels do not compute the case; None if they do."""
    if case.device.type != "cuda" or torch.cuda.get_device_capability(case.device) != (9, 0):
        return "needs a GPU of compute capability 9.0"
    if (reason := _wrong_version()) is not None:
        return reason
    if case.method not in METHODS:
        return f'computes methods "{GPROJ}" and "{ZEROSUM}", not "{case.method}"'
    if case.head_dim not in HEAD_DIMS:
        return f"head_dim must be one of {HEAD_DIMS}, got {case.head_dim}"
    if case.varlen:
        return "takes no packed sequences"
    if case.deterministic and case.head_dim not in ORDERED_HEAD_DIMS:
        return f"with deterministic=True head_dim must be one of {ORDERED_HEAD_DIMS}, got {case.head_dim}"
    if case.causal and case.seq_q > case.seq_k:
        return f"a causal mask of {case.seq_q} queries on {case.seq_k} keys leaves rows without a key"
    if 0 in (case.batch, case.heads, case.seq_q, case.seq_k):
        return "takes no empty tensors"
    if case.seq_k > 2**INDEX_BITS:
        return f"takes at most {2**INDEX_BITS} keys, got {case.seq_k}"
    return _wrong_strides(case)


def keeps_rows(method: str) -> bool:
    """Whether more is kept than o and the log-sum-exp."""
    return method in METHODS


@cache
def _wrong_version() -> str | None:
    try:
        found = metadata.version("flash-attn-4")
    except metadata.PackageNotFoundError:
        return "the package flash-attn-4 is not installed"
    return None if found == VERSION else f"needs flash-attn-4 {VERSION} exactly, found {found}"


def _wrong_strides(case: Case) -> str | None:
    sizes = (case.batch, case.heads, case.seq_q, case.head_dim), *[(case.batch, case.kv_heads, case.seq_k, 0)] * 2
    elements = BYTES // case.dtype.itemsize
    for name, strides, shape in zip("qkv", case.strides, sizes, strict=True):
        outer = [stride for stride, size in zip(strides[:3], shape[:3], strict=True) if size > 1]
        if strides[3] != 1 or any(stride <= 0 or stride % elements for stride in outer):
            return f"rows of {name} must be contiguous and begin at multiples of {BYTES} bytes, strides are {strides}"
    return None
