"""Input sets: every way to name one, and one clear error for every way a file can be wrong."""

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from gprojci_suite import exchange, inputs
from gprojci_suite.inputs import InputError, files


def layer(seq: int = 8, heads: int = 2, kv_heads: int = 2) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"q": heads, "k": kv_heads, "v": kv_heads, "do": heads}
    return {f"L0.{name}": torch.randn(1, n, seq, 16, generator=generator).bfloat16() for name, n in shapes.items()}


def saved(path: Path, tensors: dict[str, Tensor], **metadata: str) -> Path:
    save_file(tensors, path, metadata=metadata or None)
    return path


def test_bundled_captures_keep_what_matters() -> None:
    assert inputs.bundled_names() == ["early-keybias", "early-rope", "late-keybias"]
    late = inputs.load("late-keybias")
    assert late.layers["L1"].q.shape == (1, 4, 1024, 64)
    assert late.causal
    assert late.softmax_scale == 64**-0.5
    assert late.dtype == torch.bfloat16
    for name in inputs.bundled_names():
        provenance = inputs.load(name).provenance
        assert provenance["gpu"] == "H200"
        assert "kept_heads" in provenance
        assert "optimizer" in provenance
    folder = Path(inputs.__file__).parent.parent / "captures"
    assert sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) < 3_700_000
    assert json.loads((folder / "late-keybias.training.json").read_text())[-1]["step"] == 4000


def test_statistics_show_the_drifted_keys() -> None:
    statistics = {item.slice: item for item in inputs.load("late-keybias").describe().statistics}
    assert statistics["L1.b0.h0"].offset_spread == pytest.approx(32.7, rel=0.01)
    assert statistics["L1.b0.h0"].largest_logit == pytest.approx(5853, rel=0.01)


def test_by_name_path_and_hash(tmp_path: Path) -> None:
    path = saved(tmp_path / "mine.safetensors", layer(), note="x")
    by_path = inputs.load(str(path))
    digest = by_path.content_hash()
    assert inputs.load("mine", tmp_path).content_hash() == digest
    assert inputs.load(digest, tmp_path).content_hash() == digest
    bundled = inputs.load("early-rope").content_hash()
    assert inputs.load(bundled).content_hash() == bundled
    (tmp_path / "broken.safetensors").write_bytes(b"nonsense")
    assert inputs.load(digest, tmp_path).content_hash() == digest


def test_hash_is_over_the_content_not_the_file(tmp_path: Path) -> None:
    tensors = layer()
    first = inputs.load(str(saved(tmp_path / "a.safetensors", tensors)))
    second = inputs.load(str(saved(tmp_path / "b.safetensors", dict(reversed(tensors.items())), note="other")))
    assert first.content_hash() == second.content_hash()
    tensors["L0.q"][0, 0, 0, 0] += 1
    assert inputs.load(str(saved(tmp_path / "c.safetensors", tensors))).content_hash() != first.content_hash()
    full = inputs.load(str(saved(tmp_path / "d.safetensors", layer(), causal="false")))
    assert not full.causal
    assert full.content_hash() != first.content_hash()
    scaled = inputs.load(str(saved(tmp_path / "e.safetensors", layer(), softmax_scale="0.5")))
    assert scaled.softmax_scale == 0.5


@pytest.mark.parametrize(
    "name", ["nothing", "../etc/passwd", "sha256:12", "sha256:" + "0" * 64, "missing.safetensors", "", "a.pt"]
)
def test_what_does_not_exist(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        inputs.load(name, tmp_path)
    assert "\n" not in str(caught.value)


def nan(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    tensors["L0.k"][0, 0, 0, 0] = math.nan
    return tensors


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (nan, "holds NaN or Inf"),
        (lambda t: {**t, "L0.do": t["L0.do"] / 0}, "holds NaN or Inf"),
        (lambda t: {k: v for k, v in t.items() if k != "L0.v"}, "lacks v"),
        (lambda t: {**t, "extra": t["L0.q"].clone()}, "unexpected tensor"),
        (lambda t: {**t, "L0.q": t["L0.q"][0].clone()}, "must be (batch, heads, seq, head_dim)"),
        (lambda t: {**t, "L0.k": t["L0.k"][..., :8].clone()}, "v (1, 2, 8, 16) must have the shape of k"),
        (lambda t: {**t, "L0.do": t["L0.do"][:, :, :4].clone()}, "must have the shape of q"),
        (lambda t: {k: v.float() for k, v in t.items()}, "must be bfloat16 or float16"),
        (lambda t: {k: v.int() for k, v in t.items()}, "unknown dtype"),
        (lambda t: {**t, "L0.q": t["L0.q"].half()}, "must share one dtype"),
        (lambda t: {**layer(heads=3), "L0.k": t["L0.k"], "L0.v": t["L0.v"]}, "cannot share"),
        (lambda t: {}, "holds no tensor"),
    ],
)
def test_wrong_tensors(spoil: Callable[[dict[str, Tensor]], dict[str, Tensor]], problem: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "x.safetensors", spoil(layer()))
    with pytest.raises(InputError) as caught:
        inputs.load(str(path))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("metadata", [{"causal": "perhaps"}, {"softmax_scale": "wide"}, {"softmax_scale": "-1"}])
def test_wrong_metadata(metadata: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=next(iter(metadata))):
        inputs.load(str(saved(tmp_path / "x.safetensors", layer(), **metadata)))


def header(text: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        struct.pack("<Q", 2**60),
        struct.pack("<Q", 100) + b"{}",
        header(b"not json"),
        header(b"[]"),
        header(b'{"__metadata__": {"a": 1}}'),
        header(b'{"L0.q": 3}'),
        header(b'{"L0.q": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}'),
        header(b'{"L0.q": {"dtype": "BF16", "shape": [-2], "data_offsets": [0, 4]}}', b"1234"),
        header(b'{"L0.q": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 2]}}', b"12"),
        header(b'{"L0.q": {"dtype": "BF16", "shape": [1.0], "data_offsets": [0, 2]}}', b"12"),
        header(b'{"L0.q": {"dtype": "PICKLE", "shape": [1], "data_offsets": [0, 2]}}', b"12"),
        header(b'{"L0.q": {"dtype": "BF16", "shape": [1], "data_offsets": [2, 4]}}', b"1234"),
        header(b'{"L0.q": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}', b"1234"),
        header(b"[" * 100_000),
    ],
)
def test_malformed_files(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        inputs.load(str(path))
    assert "\n" not in str(caught.value)


def test_truncated_anywhere(tmp_path: Path) -> None:
    data = saved(tmp_path / "x.safetensors", layer()).read_bytes()
    for length in (*range(0, 400, 7), len(data) // 2, len(data) - 1):
        with pytest.raises(InputError):
            files.decode(data[:length], "x")
    with pytest.raises(InputError, match="belong to no tensor"):
        files.decode(data + b"\0", "x")


@given(st.binary(max_size=300))
def test_any_bytes_give_one_error(data: bytes) -> None:
    with pytest.raises(InputError):
        files.decode(header(data), "x")


def test_oversized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "x.safetensors", layer())
    monkeypatch.setattr(files, "BYTES_LIMIT", 100)
    with pytest.raises(InputError, match="oversized"):
        inputs.load(str(path))


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(InputError, match="not a file"):
        inputs.load(str(tmp_path / "x.safetensors"))


def test_exchange_agrees_with_the_safetensors_library(tmp_path: Path) -> None:
    tensors = {
        **layer(),
        "half": torch.randn(3).half(),
        "double": torch.randn(2, 2).double().mT,
        "none": torch.empty(0),
    }
    exchange.save(tmp_path / "ours", tensors, {"a": "b"})
    theirs = load_file(tmp_path / "ours")
    assert theirs.keys() == tensors.keys()
    back, metadata = exchange.parse((tmp_path / "ours").read_bytes())
    assert metadata == {"a": "b"}
    for name, tensor in tensors.items():
        assert torch.equal(theirs[name], tensor)
        assert torch.equal(back[name], tensor)


def test_synthetic_parameters() -> None:
    made = inputs.load("synthetic:offset?ratio=300&logit_std=16&seed=3&heads=4&kv_heads=2&seq=256&seq_k=128&causal=0")
    tensors = made.layers["S"]
    assert tensors.q.shape == (1, 4, 256, 64)
    assert tensors.k.shape == (1, 2, 128, 64)
    assert not made.causal
    assert 200 < made.describe().statistics[0].offset_spread < 400
    assert inputs.load("synthetic:random").content_hash() == inputs.load("synthetic:random?seed=1").content_hash()
    assert inputs.load("synthetic:random").content_hash() != inputs.load("synthetic:random?seed=2").content_hash()
    assert inputs.load("synthetic:random?dtype=float16").dtype == torch.float16
    plain = inputs.load("synthetic:offset?ratio=0&logit_std=16").layers["S"]
    logits = plain.q.float() @ plain.k.float().mT * made.softmax_scale
    assert float(logits.std()) == pytest.approx(16, rel=0.1)


@pytest.mark.parametrize(
    "query", ["ration=3", "ratio=big", "heads=0", "seq=1.5", "seed=-1", "logit_std=nan", "dtype=float32", "seq=9999999"]
)
def test_synthetic_mistakes(query: str) -> None:
    with pytest.raises(InputError, match=query.partition("=")[0] if "9999999" not in query else "oversized"):
        inputs.load(f"synthetic:offset?{query}")


def test_unknown_synthetic_kind() -> None:
    with pytest.raises(InputError, match="synthetic:random"):
        inputs.load("synthetic:nothing")
