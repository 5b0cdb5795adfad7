"""The methods at Hopper's speed: FlashAttention-4's kernels (package flash-attn-4, CuTe DSL), subclassed.

Nothing of that package is copied; what is overridden is not its public interface, so its version is fixed. It is
imported when a call is computed here, not before: `supported` must be able to refuse another version.
"""

from torch import Tensor

from gproj.hopper.support import keeps_rows, supported
from gproj.problem import Gradients, Problem, Saved

__all__ = ["backward", "forward", "keeps_rows", "supported"]


def forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Saved:
    """O and what the backward needs; tensors are (batch, heads, seq, head_dim)."""
    from gproj.hopper import launch

    return launch.forward(q, k, v, problem)


def backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, saved: Saved, problem: Problem) -> Gradients:
    """dQ, dK and dV from what the forward saved."""
    from gproj.hopper import launch

    return launch.backward(grad, q, k, v, saved, problem)
