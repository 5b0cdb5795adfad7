"""What nvidia-smi says becomes samples and void pairs; the tool is a stand-in."""

import sys
import time
from pathlib import Path

import pytest

from gprojci_suite.gpu_watch import GpuWatch, parse

SMI = """
import sys, time
if any(word.startswith("--query-compute-apps") for word in sys.argv):
    print("17")
elif any(word.startswith("--loop-ms") for word in sys.argv):
    while True:
        print(open({state!r}).read().strip(), flush=True)
        time.sleep(0.01)
else:
    print(open({state!r}).read().strip())
"""


def until(condition, seconds: float = 20.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_throttling_is_seen_while_it_lasts(tmp_path: Path) -> None:
    state, tool = tmp_path / "state", tmp_path / "smi.py"
    state.write_text("1980, 3201, 0x0000000000000000")
    tool.write_text(SMI.format(state=str(state)))
    with GpuWatch("0", (sys.executable, str(tool))) as watch:
        assert not watch.throttled()
        state.write_text("1700, 3201, 0x0000000000000004")
        until(lambda: any(sample.moment == "during" for sample in watch.samples()))
        until(lambda: "sw_power_cap" in watch.samples()[1].throttle_reasons)
        assert not watch.throttled()
        state.write_text("600, 3201, 0x0000000000000048")
        until(watch.throttled)
        state.write_text("345, 3201, 0x0000000000000001")
        until(lambda: not watch.throttled())
    before, during, after = watch.samples()
    assert (before.clocks, before.throttle_reasons) == ({"clocks.sm": 1980.0, "clocks.mem": 3201.0}, ())
    assert after.clocks["clocks.sm"] == 345.0
    assert during.clocks["clocks.sm"] == 600.0
    assert during.throttle_reasons == ("hw_slowdown", "hw_thermal_slowdown", "sw_power_cap")
    assert (after.moment, after.throttle_reasons) == ("after", ())
    assert [sample.foreign_processes for sample in (before, during, after)] == [1, None, 1]


def test_clocks_are_those_of_what_was_timed(tmp_path: Path) -> None:
    state, tool = tmp_path / "state", tmp_path / "smi.py"
    tool.write_text(SMI.format(state=str(state)))

    def seen(clock: int) -> None:
        """Until the watch has read this clock."""
        state.write_text(f"{clock}, 3201, 0x0000000000000000")
        until(lambda: watch._slowest_since.get("clocks.sm", 9999) <= clock)

    state.write_text("1980, 3201, 0x0000000000000000")
    with GpuWatch("0", (sys.executable, str(tool))) as watch:
        seen(345)
        assert watch.samples()[1].clocks["clocks.sm"] == 345.0, "nothing is timed yet"
        state.write_text("1700, 3201, 0x0000000000000000")
        time.sleep(0.2)
        watch.begin()
        seen(1700)
        assert not watch.throttled()
        seen(600)
        watch.begin()
        seen(1650)
        assert not watch.throttled()
    assert watch.samples()[1].clocks["clocks.sm"] == 1650.0


def test_without_nvidia_smi_nothing_is_known(tmp_path: Path) -> None:
    with GpuWatch("0", (str(tmp_path / "missing"),)) as watch:
        assert not watch.throttled()
    assert watch.samples() == ()


@pytest.mark.parametrize("line", ["", "No devices were found", "[N/A], 1, 0x0", "1, 2, [N/A]", "1, 2"])
def test_anything_else_is_no_sample(line: str) -> None:
    assert parse(line) is None
