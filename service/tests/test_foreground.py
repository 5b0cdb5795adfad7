"""Signals while something must be undone, and while a command runs in this one's place."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from gprojci_service.workers.foreground import SIGNALS, Signalled, run, signals_raise, signals_wait

TOLD = """
from gprojci_service.workers.foreground import run, signals_raise
with signals_raise():
    print(run(["sh", "-c", "trap 'echo told' TERM; kill -TERM $PPID; sleep 0.5 & wait; wait; exit 3"]), flush=True)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_held_up_and_raises_afterwards_whatever_thread_it_comes_in(number: int) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    go, done = threading.Event(), []

    def raise_it() -> None:
        go.wait()
        signal.raise_signal(number)

    other = threading.Thread(target=raise_it)
    other.start()

    def told() -> None:
        with signals_wait():
            signal.raise_signal(number)
            done.append("here")
            go.set()
            other.join()
            done.append("elsewhere")
        done.append("never")

    with signals_raise(), pytest.raises(Signalled) as raised:
        told()
    assert (done, raised.value.exit_code) == (["here", "elsewhere"], 128 + number)
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_a_signal_goes_on_to_the_command_whose_code_is_kept() -> None:
    done = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.returncode) == (["told", "3"], 0), done.stderr


def test_a_command_that_a_signal_ends_has_its_number_in_the_code() -> None:
    assert run(["sh", "-c", "kill -HUP $$"]) == 129
    assert run(["true"]) == 0
