"""torch scaled_dot_product_attention, math backend: upcasts 16-bit inputs, the rounding floor of a 16-bit output."""

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gprojci_suite.masks import bottom_right
from gprojci_suite.peers import Case


def supported(case: Case, device: str) -> str | None:
    """Runs anywhere."""
    return None


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, softmax_scale: float) -> Tensor:
    """Attention through the math backend; an explicit mask where torch's own would be aligned to the top left."""
    square = q.shape[2] == k.shape[2]
    mask = bottom_right(q.shape[2], k.shape[2], q.device) if causal and not square else None
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            is_causal=causal and square,
            scale=softmax_scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
