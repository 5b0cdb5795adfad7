"""The portable backend: Triton kernels for every device that Triton compiles for, interpreted on a CPU for tests."""

from gproj.triton.launch import backward, forward
from gproj.triton.support import keeps_rows, supported

__all__ = ["backward", "forward", "keeps_rows", "supported"]
