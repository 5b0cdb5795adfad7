"""What needs not happen in turn: messages to many processes at a time, and calls in threads."""

import functools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gprojci_suite.ending import Ending
from gprojci_suite.member import Member

Waiting = tuple[Member, Member, Callable[[], dict[str, Any]]]
"""A member, a process of it, and what waits for its answer; that raises like `BackendProcess.receive`."""


def answers(
    asked: Sequence[tuple[Member, Member]],
    message: Callable[[Member], Mapping[str, Any] | None],
    ending: Ending,
    seconds: float,
    at_once: int,
    room: float = math.inf,
) -> Iterator[Waiting]:
    """What waits for each answer of processes to a message, where there is one for them and they have not ended.

    Args:
        asked: the processes, each after its member.
        message: what to ask one.
        ending: after which nobody is asked any more.
        seconds: longest that an answer is waited for.
        at_once: how many may be under way.
        room: bytes that those under way may take together, each what the first of its member took.
    """
    waiting: deque[tuple[Member, Member]] = deque()

    def next_one() -> Iterator[Waiting]:
        member, one = waiting.popleft()
        if one.process is not None:  # else another of the member has failed meanwhile
            yield member, one, functools.partial(one.process.receive, seconds)

    for member, one in asked:
        while waiting and (len(waiting) >= at_once or sum(m.peak_bytes for m, _ in waiting) + member.peak_bytes > room):
            yield from next_one()
        question = message(one)
        if one.process is not None and question is not None and ending.reason is None:
            one.process.send(question)
            waiting.append((member, one))
    while waiting:
        yield from next_one()


def in_threads(calls: Sequence[Callable[[], None]]) -> None:
    """Make the calls in threads: a process that ends on a GPU takes its time, and they need not wait for each other."""
    with ThreadPoolExecutor(max(1, len(calls))) as threads:
        for made in [threads.submit(call) for call in calls]:
            made.result()
