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
from gproj.hopper.support import METHODS, ORDERED_HEAD_DIMS

ELEMENTS = {"bfloat16": cutlass.BFloat16, "float16": cutlass.Float16}

for variant in sys.argv[1:]:
    dtype, head_dim, group, mask = variant.split(",")
    kernel = compiled.Kernel(ELEMENTS[dtype], int(head_dim), int(group), mask == "causal")
    for subject in {each for method in METHODS for each in launch.forward_classes(method, kernel.head_dim)}:
        assert compiled.forward(kernel, subject) is not None
        print(subject.__name__, variant, flush=True)
    backwards = [launch.BACKWARD]
    if kernel.head_dim in ORDERED_HEAD_DIMS:
        backwards.append(launch.DETERMINISTIC_BACKWARD)
    for chosen in backwards:
        assert compiled.backward(kernel, chosen) is not None
        print(chosen.__name__, variant, flush=True)
