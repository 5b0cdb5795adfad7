"""Pre-processing peers: change the inputs exactly or nearly invisibly, then run another peer on them.

Spelled `NAME+PEER`, such as `keycenter-exact+sdpa-flash`. One file each, found by listing names and imported when
asked: a docstring whose first line describes it, and `keys(k) -> k`, differentiable, (batch, kv_heads, seq, head_dim).
"""
