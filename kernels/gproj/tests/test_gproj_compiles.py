"""Every kernel compiles for GPUs that this machine does not have, fits them, and is not contracted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
SHARED_KIB = {"90": 227, "80": 163, "86": 99}


@pytest.mark.parametrize(("capability", "head_dims"), [("90", ["128", "256"]), ("80", ["256"]), ("86", ["256"])])
def test_compiles(capability: str, head_dims: list[str], tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compile_kernels.py")), capability, *head_dims],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    # Two forwards, four of dQ, one of dK and dV, for each head size; three packed of 64.
    assert len(compiled) == 7 * len(head_dims) + (3 if capability == "90" else 0)
    for kernel in compiled:
        assert kernel["shared"] <= SHARED_KIB[capability] * 1024, kernel
        assert kernel["contracted"] == 0, kernel
        assert kernel["atomics"] == 0, kernel
        assert kernel["tensor_core"] == ("wgmma.mma_async" if capability == "90" else "mma.sync"), kernel
