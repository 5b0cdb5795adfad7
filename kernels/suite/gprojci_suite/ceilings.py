"""What the device can do in this session: a BF16 matrix product and a copy, timed in a process of their own.

`echo | python -m gprojci_suite.ceilings DEVICE THREADS` prints both as JSON. A matrix product's FLOPs are 2·n³; a copy
moves its bytes twice, read and written. Each is the fastest of several calls: a ceiling, not an average.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from gprojci_suite.contract.timing import Ceilings
from gprojci_suite.contract.vocabulary import Device
from gprojci_suite.ending import Ending
from gprojci_suite.process import available_threads

REPEATS = 10
PRODUCT_SIZE = {"cpu": 1024, "cuda": 8192}
COPY_BYTES = {"cpu": 2**27, "cuda": 2**31}


def attention_flops(batch: int, heads: int, seq_q: int, seq_k: int, head_dim: int, *, causal: bool) -> dict[str, float]:
    """FLOPs by pass as attention kernels are rated: forward 4·B·H·Sq·Sk·D, half of it causal, backward 2.5 times that.

    Recomputation and the work of a particular kernel are not counted.
    """
    forward = 4.0 * batch * heads * seq_q * seq_k * head_dim * (0.5 if causal else 1.0)
    return {"forward": forward, "backward": 2.5 * forward, "forward_backward": 3.5 * forward}


class Probe:
    """Context manager over the process, which imports torch at once and measures when it is asked to.

    Args:
        device: what it measures.
    """

    def __init__(self, device: Device) -> None:
        command = [sys.executable, "-P", "-m", "gprojci_suite.ceilings", device, str(available_threads())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def measure(self, seconds: float, ending: Ending) -> Ceilings | str:
        """The ceilings, or why there are none; takes at most `seconds`, and no longer than the session."""
        deadline, word = time.monotonic() + seconds, "measure\n"
        while True:
            try:
                printed, complaints = self._process.communicate(word, timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                word = ""  # was sent; what is given the second time is ignored
                late = f"not measured within {seconds:g} s" if time.monotonic() > deadline else ending.reason
                if late:
                    return late
        if self._process.returncode != 0:
            return (complaints.strip().splitlines() or ["no reason given"])[-1]
        return Ceilings(**json.loads(printed))


def here(device: Device) -> Ceilings:
    """Time both in this process."""
    size, count = PRODUCT_SIZE[device], COPY_BYTES[device]
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(a)
    tflops = 2 * size**3 / _fastest(lambda: torch.mm(a, b, out=product), device) / 1e12
    source = torch.zeros(count, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    return Ceilings(tflops, 2 * count / _fastest(lambda: target.copy_(source), device) / 1e9)


def _fastest(call: Callable[[], object], device: Device) -> float:
    for _ in range(3):
        call()
    found = []
    for _ in range(REPEATS):
        _synchronise(device)
        begin = time.perf_counter()
        call()
        _synchronise(device)
        found.append(time.perf_counter() - begin)
    return min(found)


def _synchronise(device: Device) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Entry point: device and threads as arguments; prints the ceilings when a line comes in, nothing without one."""
    device: Device = "cuda" if sys.argv[1] == "cuda" else "cpu"
    torch.set_num_threads(int(sys.argv[2]))
    torch.zeros(1, device=device)
    if sys.stdin.readline():
        found = here(device)
        print(json.dumps({"matmul_tflops": found.matmul_tflops, "copy_gb_s": found.copy_gb_s}))


if __name__ == "__main__":
    main()
