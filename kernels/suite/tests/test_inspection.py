"""What inspect tells of an input set, in text and as a page that needs nothing else."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gprojci_suite import cli, exchange, expected, inputs, inspection, inspection_page
from gprojci_suite.inputs import InputSet
from gprojci_suite.inspection import Inspection

TINY = "synthetic:offset?heads=4&kv_heads=2&seq=96&head_dim=16"


@pytest.fixture(scope="module")
def found() -> Inspection:
    """The tiny set inspected."""
    return inspection.inspect(inputs.load(TINY), lambda line: None)


class Strict(HTMLParser):
    """Refuses tags that do not nest, and collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_emulated_backend_and_slice_is_expected(found: Inspection) -> None:
    assert set(found.backends) == set(expected.names())
    assert {"emulated-fa3", "emulated-gproj", "emulated-zerosum"} <= set(found.backends)
    assert list(found.error("emulated-fa3", "dq")) == [f"S.b0.h{h}" for h in range(4)]
    assert list(found.error("emulated-fa3", "dk")) == [f"S.b0.h{h}" for h in range(2)]
    worst = {name: max(s.rel_err for s in found.error(name, "dq").values()) for name in found.backends}
    assert worst["emulated-fa3"] > 0.5
    assert worst["emulated-gproj"] < 0.01


def test_profiles(found: Inspection) -> None:
    for statistics, profile in zip(found.description.statistics, found.profiles, strict=True):
        assert profile.slice == statistics.slice
        assert float(profile.top_probability.median()) == pytest.approx(statistics.median_top_probability)
        # The mean over dimensions of the squares is what the ratio of norms is made of.
        assert float(profile.mean_key.square().mean().sqrt()) == pytest.approx(statistics.offset_spread, rel=1e-3)


def test_the_heads_that_are_hit_most(found: Inspection) -> None:
    by_head = expected.dq_error_by_head("emulated-fa3", inputs.load(TINY), "S")
    errors = found.error("emulated-fa3", "dq")
    assert by_head == {head: pytest.approx(errors[f"S.b0.h{head}"].rel_err) for head in range(4)}


def test_text(found: Inspection) -> None:
    text = inspection.render(found)
    assert "offset / spread" in text
    assert "expected relative error of dk, by emulation" in text
    assert "4 heads, 2 key/value heads" in text
    assert found.description.content_hash in text


def test_the_page_is_whole_and_loads_nothing(found: Inspection) -> None:
    text = inspection_page.page(found)
    parser = Strict()
    parser.feed(text)
    assert parser.open == []
    assert parser.loads == []
    assert "script" not in parser.tags
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    assert text.count("<svg") == 1 + 2 + 1 + 2 * 4
    for number in range(len(found.backends)):
        assert f'class="s{number}"' in text
    assert not re.search(r'="(nan|inf)', text)


def test_what_comes_from_the_file_is_escaped(found: Inspection) -> None:
    item = inputs.load("synthetic:random?heads=1&seq=16&head_dim=16")
    evil = InputSet("<script>x</script>", item.layers, True, item.softmax_scale, {"a<b>": "<img src=x>&'\""})
    text = inspection_page.page(inspection.inspect(evil, lambda line: None))
    assert "<script>" not in text
    assert "<img" not in text
    assert "&lt;img src=x&gt;" in text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item = inputs.load("synthetic:random?heads=1&seq=24&seq_k=16&head_dim=16")
    tensors = {f"L7.{part}": getattr(item.layers["S"], part) for part in ("q", "k", "v", "do")}
    exchange.save(tmp_path / "mine.safetensors", tensors, {"step": "12"})
    page = tmp_path / "out.html"
    assert cli.main(["inspect", str(tmp_path / "mine.safetensors"), "--html", str(page)]) == 0
    printed = capsys.readouterr()
    assert "L7.b0.h0" in printed.out
    assert "step: 12" in printed.out
    assert "emulate emulated-fa3" in printed.err
    assert "L7.b0.h0" in page.read_text()
    assert cli.main(["inspect", "mine", "--input-directory", str(tmp_path)]) == 0
    assert cli.main(["inspect", "nothing"]) == 2
