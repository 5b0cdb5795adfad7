"""FlashAttention-3 (CUDA, Hopper only): the module flash_attn_interface, or the library op torch.ops.flash_attn_3.

Taken in this order: the library file named by GPROJCI_FA3_LIBRARY; the module flash_attn_interface; the library inside
an installed xformers wheel (0.0.34 carries it). All three are the same kernels. A library built for CUDA 12 needs
libcudart.so.12, which GPROJCI_FA3_CUDART may name where the system does not find it.
"""

import ctypes
import functools
import importlib.util
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gprojci_suite.peers import Case

LIBRARY_VARIABLE = "GPROJCI_FA3_LIBRARY"
CUDART_VARIABLE = "GPROJCI_FA3_CUDART"
CUDART = "libcudart.so.12"


def supported(case: Case, device: str) -> str | None:
    """Needs CUDA, the module or the library, and compute capability 9.x."""
    if device != "cuda":
        return "needs a CUDA device"
    missing = _missing()
    if missing is not None:
        return missing
    if torch.cuda.get_device_capability()[0] != 9:
        return "FlashAttention-3 runs on compute capability 9.x only"
    if case.head_dim > 256 or case.head_dim % 8:
        return "FlashAttention-3 takes multiples of 8 up to 256 as head_dim"
    return None


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float, deterministic: bool = False
) -> Tensor:
    """Attention through FlashAttention-3, whose layout is (batch, seq, heads, head_dim)."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    library = _library()
    if library is not None:
        _load(library)
        o: Tensor = _Attention.apply(q, k, v, causal, softmax_scale, deterministic)  # type: ignore[no-untyped-call]
        return o.transpose(1, 2)
    from flash_attn_interface import flash_attn_func

    result = flash_attn_func(q, k, v, causal=causal, softmax_scale=softmax_scale, deterministic=deterministic)
    # Some versions return (o, lse).
    o = result[0] if isinstance(result, tuple) else result
    return o.transpose(1, 2)


class _Attention(torch.autograd.Function):
    """The library's forward and backward ops; softcap, windows and variable lengths are left at their defaults."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, softmax_scale: float, deterministic: bool
    ) -> Tensor:
        o, lse, *_ = torch.ops.flash_attn_3.fwd(q, k, v, softmax_scale=softmax_scale, is_causal=causal)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.settings = {"is_causal": causal, "softmax_scale": softmax_scale, "deterministic": deterministic}
        return o  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        torch.ops.flash_attn_3.bwd(grad, q, k, v, o, lse, dq, dk, dv, **ctx.settings)
        return dq, dk, dv, None, None, None


def _missing() -> str | None:
    named = os.environ.get(LIBRARY_VARIABLE)
    if named and not Path(named).is_file():
        return f"{LIBRARY_VARIABLE} names {named}, which is not a file"
    if not named and importlib.util.find_spec("flash_attn_interface") is None and _in_xformers() is None:
        return (
            "neither the module flash_attn_interface nor an xformers with flash_attn_3 is installed, "
            f"and {LIBRARY_VARIABLE} names no library"
        )
    cudart = os.environ.get(CUDART_VARIABLE)
    if cudart and not Path(cudart).is_file():
        return f"{CUDART_VARIABLE} names {cudart}, which is not a file"
    return None


def _library() -> Path | None:
    """The library to load, or None where the module is to be used."""
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return Path(named)
    return None if importlib.util.find_spec("flash_attn_interface") is not None else _in_xformers()


def _in_xformers() -> Path | None:
    """The library inside an installed xformers, found without importing it."""
    spec = importlib.util.find_spec("xformers")
    folders = spec.submodule_search_locations if spec is not None else None
    found = [path for folder in folders or () for path in sorted((Path(folder) / "flash_attn_3").glob("_C*.so"))]
    return found[0] if found else None


@functools.cache
def _load(library: Path) -> None:
    """Register the ops; raises OSError naming what the loader misses."""
    cudart = os.environ.get(CUDART_VARIABLE)
    if cudart:
        # Global, so that the library's own reference to its CUDA 12 runtime is satisfied by it.
        ctypes.CDLL(cudart, ctypes.RTLD_GLOBAL)
    try:
        torch.ops.load_library(library)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise OSError(f"{error} ({CUDART_VARIABLE} may name {CUDART})") from error
