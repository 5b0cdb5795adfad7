"""The suite and gproj install alone into a fresh environment and need no web stack there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CODE = """
import json, sys
import gprojci_suite.contract
light = sorted(set(sys.modules) & {"torch", "numpy", "fastapi"})
import gproj, gprojci_suite.run, gprojci_suite.cli, torch
from gprojci_suite import peers
q = torch.randn(1, 2, 8, 16).bfloat16().requires_grad_()
gproj.attention(q, q, q, causal=True).sum().backward()
heavy = sorted(set(sys.modules) & {"fastapi", "sqlalchemy", "celery", "plotly", "httpx", "pydantic"})
print(json.dumps({"light": light, "heavy": heavy, "peers": peers.names(), "where": gproj.__file__}))
"""


@pytest.mark.bare
@pytest.mark.timeout(600)
def test_both_kernel_members_install_bare(tmp_path: Path) -> None:
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=120)
    python = environment / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    pin = ["-c", str(constraints)] if constraints.exists() else ["torch==2.13.0"]
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", *pin]
    if "TORCH_INDEX" in os.environ:
        command += ["--extra-index-url", os.environ["TORCH_INDEX"]]
    command += [str(ROOT / "kernels" / "suite"), str(ROOT / "kernels" / "gproj")]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert installed.returncode == 0, installed.stderr
    command = [python, "-P", "-c", CODE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["light"] == []
    assert found["heavy"] == []
    assert "sdpa-math" in found["peers"]
    assert found["where"].startswith(str(environment))
    listed = subprocess.run(
        [environment / "bin" / "gprojci-suite", "list"], capture_output=True, text=True, timeout=120, check=False
    )
    assert listed.returncode == 0
    assert "late-keybias" in listed.stdout
    installed_names = subprocess.run(
        [python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, timeout=60, check=True
    )
    names = {item["name"].lower() for item in json.loads(installed_names.stdout)}
    assert not names & {"fastapi", "sqlalchemy", "celery", "redis", "plotly", "httpx", "pydantic"}
