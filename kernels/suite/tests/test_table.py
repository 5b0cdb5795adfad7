"""What a terminal shows of times: launches, graphs and kernels where there are any."""

import json
from pathlib import Path
from typing import Any

from gprojci_suite import cli, table
from gprojci_suite.contract import Report

TIMED = ["bench", "--suites", "throughput", "--shapes", "1x1x64x16", "--backends", "sdpa-math,fp32"]
KERNEL = {"backend": "fp32", "revision": "ruler", "case": "1x1x64x16.causal.bfloat16", "pass": "forward"}
KERNEL |= {"launches": 2, "registers_per_thread": 168, "shared_memory_bytes": 2048, "spills": None}
KERNEL |= {"grid": [4, 2, 1], "block": [128, 1, 1]}


def changed(report: dict[str, Any]) -> Report:
    """A report of a CPU as one of a GPU would look."""
    timed = report["throughput"]
    for index, measured in enumerate(timed["measurements"]):
        measured["host_seconds"] = 0.00071
        measured |= (
            {"graph_seconds": 0.00044} if index else {"graph_detail": "forward cannot be captured: RuntimeError"}
        )
    names = ("k" * 200, "second", "third", "fourth")
    timed["kernels"] = [{**KERNEL, "kernel": name, "seconds": 0.001 / (n + 1)} for n, name in enumerate(names)]
    timed["kernels"].append({**KERNEL, "kernel": "bwd", "seconds": 0.1, "pass": "backward", "spills": 12})
    return Report.from_json(report)


def test_what_a_gpu_tells_is_shown_and_what_a_cpu_cannot_is_not(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out.json"
    assert cli.main([*TIMED, "--pairs", "2", "--max-pairs", "2", "--json", str(out)]) == 0
    plain = capsys.readouterr().out
    assert not any(word in plain for word in (" launch ", " graph ", "kernels"))
    shown = table.render(changed(json.loads(out.read_text())))
    header, _, *rows = shown.split("time (")[1].splitlines()[1:]
    assert header.split()[3:7] == ["median", "launch", "graph", "TFLOP/s"]
    assert sum("0.710 ms  0.440 ms" in row for row in rows) == 5
    assert sum("0.710 ms  no: forward cannot be captured" in row for row in rows) == 1
    kernels = shown.split("kernels (")[1].split("\n\n")[0].splitlines()[3:]
    assert [row.split()[3][:6] for row in kernels] == ["bwd", "kkkkkk", "second", "third"], (
        "the longest three of a pass"
    )
    assert "168        12      2.0 KiB  4×2×1  128×1×1" in kernels[0]
    assert "k" * 61 not in shown
