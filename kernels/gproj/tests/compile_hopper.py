"""Compile the Hopper kernels for compute capability 9.0a on a machine that may have no GPU, one line per kernel.

Arguments: element type, head_dim, query heads per key head and mask of each variant, as `bfloat16,128,1,causal`.
"""

import os
import sys

# Read when the packages are imported.
os.environ |= {
    "FLASH_ATTENTION_ARCH": "sm_90a",
    "CUTE_DSL_ARCH": "sm_90a",
    "FLASH_ATTENTION_NUM_SMS": "132",
}

import cutlass

from gproj.hopper import compiled, launch

ELEMENTS = {"bfloat16": cutlass.BFloat16, "float16": cutlass.Float16}

for variant in sys.argv[1:]:
    dtype, head_dim, group, mask = variant.split(",")
    kernel = compiled.Kernel(ELEMENTS[dtype], int(head_dim), int(group), mask == "causal")
    for method, subject in launch.FORWARDS.items():
        assert compiled.forward(kernel, subject) is not None
        print("forward", method, variant, flush=True)
    assert compiled.backward(kernel, launch.BACKWARD) is not None
    print("backward", variant, flush=True)
