"""How far dq moves when the keys of a run are shifted: an error that needs no reference to be seen.

One vector added to all keys of a head must not move dq (`symmetry` derives it). So the call is made again with keys
from which as much of their common offset is taken as goes without rounding any of them (Sterbenz' lemma,
`keycenter-exact`): no logit changes but by a constant of its row, which softmax does not see, and by how much dq moves
is what the backend makes of the offset. Dimensions whose keys lie too far apart for an exact shift stay as they are,
and so does what leaks through them: the response is a lower estimate.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from gprojci_suite.peers.preprocessing import keycenter_exact

WARN_AT = 0.1
"""Response or error from which a run is worth a warning: a tenth of dq is not the gradient."""


def key_shift_response(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor], q: Tensor, k: Tensor, v: Tensor, do: Tensor, dq: Tensor
) -> tuple[Tensor, Tensor]:
    """(‖dq(K) − dq(K − c)‖ ÷ ‖dq(K − c)‖, ‖dq(K − c)‖) of every head, (batch, heads) each.

    Args:
        attend: the backend with its mask and scale, differentiable.
        q: queries (batch, heads, seq_q, head_dim).
        k: keys (batch, kv_heads, seq_k, head_dim).
        v: values, shaped like k.
        do: gradient of o.
        dq: the gradient of q that the backend returned for these.
    """
    leaves = [part.detach().clone().requires_grad_() for part in (q, keycenter_exact.keys(k), v)]
    with torch.enable_grad():
        o = attend(*leaves)
    (again,) = torch.autograd.grad(o, leaves[:1], do.to(o.dtype))
    moved = (dq.double() - again.double()).flatten(2).norm(dim=-1)
    norm = again.double().flatten(2).norm(dim=-1)
    return moved / norm, norm
