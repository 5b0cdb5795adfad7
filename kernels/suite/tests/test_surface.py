"""The sweep over synthetic offsets and logits, from the command to the report."""

from pathlib import Path

import pytest

from gprojci_suite import cli, surface
from gprojci_suite.contract import Report
from gprojci_suite.contract.surface import SurfacePoint

BACKENDS = ["emulated-fa3", "emulated-gproj", "sdpa-flash", "fp32-fast"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One run with four backends."""
    out = tmp_path_factory.mktemp("surface") / "out.json"
    assert cli.main(["bench", "--suites", "surface", "--backends", ",".join(BACKENDS), "--json", str(out)]) == 0
    return Report.loads(out.read_text())


def points(report: Report, backend: str, tensor: str = "dq") -> dict[tuple[float, float], SurfacePoint]:
    """Points of one backend by (offset, deviation of the logits)."""
    assert report.surface is not None
    return {(p.ratio, p.logit_std): p for p in report.surface.points if (p.backend, p.tensor) == (backend, tensor)}


def test_every_point_of_every_backend_is_there(report: Report) -> None:
    assert report.accuracy is None
    assert report.inputs == ()
    for backend in BACKENDS:
        for tensor in ("o", "dq", "dk", "dv"):
            assert set(points(report, backend, tensor)) == {
                (float(ratio), float(logit_std)) for ratio in surface.RATIOS for logit_std in surface.LOGIT_STDS
            }


def test_the_defect_grows_with_the_offset_and_the_repair_does_not(report: Report) -> None:
    for logit_std in surface.LOGIT_STDS:
        rising = [points(report, "emulated-fa3")[ratio, logit_std].median for ratio in surface.RATIOS]
        assert rising == sorted(rising)
        assert rising[0] < 0.01 < 0.3 < rising[-1]
    for backend in ("emulated-gproj", "fp32-fast"):
        assert all(0.001 < p.median <= p.worst < 0.004 for p in points(report, backend).values())
    # The law: about 0.28% of the offset over the spread for diffuse rows, up to 0.7% for spiky ones.
    assert points(report, "emulated-fa3")[300, 1].median == pytest.approx(300 * 0.0028, rel=0.2)
    assert points(report, "emulated-fa3")[300, 32].median == pytest.approx(300 * 0.007, rel=0.1)


def test_another_seed_draws_other_inputs() -> None:
    first, again, other = surface.places(0), surface.places(0), surface.places(1)
    assert first[3].inputs.content_hash() == again[3].inputs.content_hash() != other[3].inputs.content_hash()


def test_a_backend_that_fails_keeps_no_point_after_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert cli.main(["bench", "--suites", "surface", "--backends", "fa3,sdpa-math", "--json", str(out)]) == 1
    report = Report.loads(out.read_text())
    assert not points(report, "fa3")
    assert points(report, "sdpa-math")
    assert "surface: median relative error of dq" in capsys.readouterr().out
