"""Attention whose gradients keep what BF16 kernels lose: every row of dS sums to zero.

    from gproj import attention, zerosum_attention

    o = attention(q, k, v, causal=True)            # the published projection: repairs dQ
    o = zerosum_attention(q, k, v, causal=True)    # the zero-sum forward: repairs dQ and dK

q is (batch, heads, seq_q, head_dim), k and v are (batch, kv_heads, seq_k, head_dim), all bfloat16 or float16.
"""

from gproj.arguments import UnsupportedInput
from gproj.projected import attention
from gproj.zerosum import zerosum_attention

__all__ = ["UnsupportedInput", "attention", "zerosum_attention"]
__version__ = "0.1.0"
