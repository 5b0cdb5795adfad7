"""Attention whose gradients keep what BF16 kernels lose: every row of dS sums to zero.

    from gproj import attention

    o = attention(q, k, v, causal=True)                      # the published projection: repairs dQ
    o = attention(q, k, v, causal=True, method="zerosum")    # the zero-sum forward: repairs dQ and dK

q is (batch, heads, seq_q, head_dim), k and v are (batch, kv_heads, seq_k, head_dim), all bfloat16 or float16. Neither
Triton nor CuTe is imported before a call takes them.
"""

from gproj.api import attention, attention_varlen, explain, unfused_attention, zerosum_attention
from gproj.arguments import UnsupportedInput
from gproj.routing import routed_sdpa

__all__ = [
    "UnsupportedInput",
    "attention",
    "attention_varlen",
    "explain",
    "routed_sdpa",
    "unfused_attention",
    "zerosum_attention",
]
__version__ = "0.1.0"
