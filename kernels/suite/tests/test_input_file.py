"""The torch-free reader of input files agrees with the ruler's own, down to the content hash."""

import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gprojci_suite import cli, exchange, inputs
from gprojci_suite.contract import bundled, input_file, tensor_file
from gprojci_suite.contract.tensor_file import MalformedFile
from gprojci_suite.inputs import InputError

KNOWN_HASHES = {  # stored reports and databases know the bundled sets by these
    "early-keybias": "sha256:28a96216fbede3efd6120b45d14f5ea474d5235e421fbeed9a586fa3afb82e3c",
    "early-rope": "sha256:4108160ee382fc991ef97cfe262c644d45a4dc6e1b6f8d656a1e5135a9c45fdc",
    "late-keybias": "sha256:a2800dc242f55364ba17c9a4e23e27e8240dbaaf186337777a17d4e011d76258",
}


def write(path: Path, dtype: torch.dtype = torch.bfloat16, **metadata: str) -> Path:
    generator = torch.Generator().manual_seed(3)
    sizes = {"q": 4, "do": 4, "k": 2, "v": 2}
    tensors = {
        f"{layer}.{part}": torch.randn(1, heads, 24, 16, generator=generator).to(dtype)
        for layer in ("L2", "L10")
        for part, heads in sizes.items()
    }
    save_file(tensors, path, metadata=metadata or None)
    return path


@pytest.mark.parametrize("name", inputs.bundled_names())
def test_bundled_captures_have_the_hash_that_reports_give(name: str) -> None:
    data = bundled.read(name)
    found, content_hash = input_file.check_stream(io.BytesIO(data), len(data))
    item = inputs.load(name)
    described = item.describe()
    assert content_hash == item.content_hash() == KNOWN_HASHES[name]
    assert found.layers == described.layers
    assert (found.dtype, found.causal, found.softmax_scale) == (
        described.dtype,
        described.causal,
        described.softmax_scale,
    )
    assert found.provenance == described.provenance


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-9], lambda data: b"", lambda data: data[:99] + b"x" + data[100:]]
)
def test_a_damaged_bundled_capture_is_one_clear_error(
    spoil: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "mine.safetensors.xz").write_bytes(spoil(lzma.compress(bytes(range(256)) * 9)))
    monkeypatch.setattr(bundled.resources, "files", lambda package: tmp_path)
    with pytest.raises(InputError, match=r"^mine: the bundled mine.safetensors.xz is damaged .*install gprojci-suite"):
        inputs.load("mine")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_any_order_of_tensors_has_one_hash(dtype: torch.dtype, tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", dtype, causal="false", softmax_scale="0.3", note="x")
    tensors, metadata = exchange.parse(path.read_bytes())
    exchange.save(tmp_path / "b.safetensors", dict(reversed(tensors.items())), metadata | {"note": "y"})
    first, second = input_file.check(path), input_file.check(tmp_path / "b.safetensors")
    assert first[1] == second[1] == inputs.load(str(path)).content_hash()
    assert [entry.name for entry in first[0].tensors][:4] == ["L10.q", "L10.k", "L10.v", "L10.do"]
    assert first[0].file_bytes == path.stat().st_size


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_found(dtype: torch.dtype, value: float, tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", dtype)
    tensors, _ = exchange.parse(path.read_bytes())
    tensors["L2.v"][0, 1, 23, 15] = value
    exchange.save(path, tensors)
    with pytest.raises(MalformedFile, match=r"L2\.v: holds NaN or Inf"):
        input_file.check(path)
    with pytest.raises(InputError, match=r"L2\.v: holds NaN or Inf"):
        inputs.load(str(path))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_finite_number_is_one(dtype: torch.dtype, tmp_path: Path) -> None:
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    finite = torch.where(torch.isfinite(every), every, torch.zeros((), dtype=dtype)).reshape(1, 1, 4096, 16)
    exchange.save(tmp_path / "a.safetensors", {f"L0.{part}": finite for part in ("q", "k", "v", "do")})
    assert input_file.check(tmp_path / "a.safetensors")[1].startswith("sha256:")


def test_a_file_that_ends_early_or_late_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "a.safetensors").read_bytes()
    path = tmp_path / "b.safetensors"
    for length in (0, 7, 8, 200, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(MalformedFile):
            input_file.check(path)
    path.write_bytes(data + b"\0\0")
    with pytest.raises(MalformedFile, match="2 bytes belong to no tensor"):
        input_file.check(path)


def test_a_header_without_end_is_not_read() -> None:
    with pytest.raises(MalformedFile, match="longer than 1000000 bytes"):
        tensor_file.data_start((10**6 + 1).to_bytes(8, "little"))


def test_the_command_describes_a_set_as_reports_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "mine.safetensors")
    assert cli.main(["describe", "mine", "--input-directory", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["content_hash"] == input_file.check(path)[1]
    assert [entry["slice"] for entry in said["statistics"]][:2] == ["L10.b0.h0", "L10.b0.h1"]
    assert len(said["statistics"]) == 8
    assert cli.main(["describe", "nothing"]) == 2
