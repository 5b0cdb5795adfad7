"""What the driver says of this host's GPUs."""

from __future__ import annotations

import subprocess


def query(fields: str) -> str:
    """The lines that `nvidia-smi --query-gpu` answers, one a GPU; of several fields, separated by commas.

    Raises:
        OSError, subprocess.SubprocessError: there is no nvidia-smi, or it fails.
    """
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
