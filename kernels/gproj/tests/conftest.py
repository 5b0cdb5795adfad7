"""Without a GPU, Triton's kernels are interpreted; Triton reads that when gproj first imports it, at the first call."""

import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device() -> str:
    """Where kernels run: the GPU if there is one."""
    return DEVICE
