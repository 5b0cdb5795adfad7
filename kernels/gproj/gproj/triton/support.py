"""Which calls the Triton kernels compute."""

import torch

from gproj.problem import ZEROSUM, Case
from gproj.triton.arithmetic import INTERPRETED

MAX_HEAD_DIM = 256


def supported(case: Case) -> str | None:
    """Why the kernels do not compute the case; None if they do."""
    if case.device.type != ("cpu" if INTERPRETED.value else "cuda"):
        wanted = "CPU tensors under TRITON_INTERPRET=1" if INTERPRETED.value else "CUDA tensors"
        return f"Triton computes {wanted}, these are on {case.device}"
    if case.head_dim % 8 or case.head_dim > MAX_HEAD_DIM:
        return f"head_dim must be a multiple of 8 up to {MAX_HEAD_DIM}, got {case.head_dim}"
    if case.device.type == "cuda" and torch.cuda.get_device_capability(case.device) < (8, 0):
        return f"needs compute capability 8.0 or higher, {torch.cuda.get_device_name(case.device)} has less"
    return None


def keeps_rows(method: str) -> bool:
    """Whether more is kept than o and the log-sum-exp."""
    return method == ZEROSUM
