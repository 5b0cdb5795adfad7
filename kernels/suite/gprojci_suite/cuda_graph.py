"""One case as CUDA graphs: forward and backward captured once and replayed, so that one launch covers all kernels."""

from collections.abc import Callable
from typing import Any

from gprojci_suite.cuda_timing import CALIBRATED, DISCARDED, CudaTimer

WARM_UP = 3
REPLAYS = 20
REASON_LIMIT = 300


def replay(torch: Any, timer: CudaTimer, forward: Callable[[], Any], backward: Callable[[Any], Any]) -> dict[str, Any]:
    """Seconds of each replay by pass, and why a pass could not be captured.

    Forward and backward share a memory pool, as in `torch.cuda.make_graphed_callables`; the backward graph reads what
    the forward graph saved, so they are replayed in turn.

    Args:
        torch: the module torch, or what stands for it in a test.
        timer: of the case.
        forward: returns o.
        backward: takes o and computes the gradients.

    Returns:
        `forward` and `backward`, lists of seconds, empty where it could not be captured; `detail`, why, or None.
    """
    found: dict[str, Any] = {"forward": [], "backward": [], "detail": None}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            backward(forward())
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graphs: dict[str, Any] = {}
    kept: list[Any] = []  # What a graph writes into must live as long as the graph.
    for name in ("forward", "backward"):
        graph = torch.cuda.CUDAGraph()
        pool = {"pool": graphs["forward"].pool()} if graphs else {}
        try:
            with torch.cuda.graph(graph, **pool):
                kept.append(forward() if name == "forward" else backward(kept[0]))
            torch.cuda.synchronize()
        # Whatever the backend or CUDA raises during a capture is the reason why there is no graph of it.
        except Exception as error:  # noqa: BLE001
            found["detail"] = f"{name} cannot be captured: {type(error).__name__}: {error}"[:REASON_LIMIT]
            break
        graphs[name] = graph
    for _ in range(DISCARDED + CALIBRATED + REPLAYS if graphs else 0):
        for name, graph in graphs.items():
            found[name].append(timer.time(f"graph {name}", graph.replay)[0].seconds)
    for name in graphs:
        del found[name][: DISCARDED + CALIBRATED]
    return found
