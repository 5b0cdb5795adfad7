"""The ruler's own small tensor work on one thread."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch's operators within run on one thread of this process.

    Slices are of some ten thousand elements. Where other processes want the cores, every operator of two threads waits
    until the second is scheduled: on two busy cores the metrics of one input set took 10 s instead of 0.8 s.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
