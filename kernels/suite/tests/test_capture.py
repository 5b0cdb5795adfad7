"""A tiny training loop on the CPU: what is recorded, what is not, and that nothing half-written stays."""

import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention as imported_by_name

from gprojci_suite import exchange, expected, inputs, reference
from gprojci_suite.capture import CaptureError, CaptureWarning, Target, capture, selection
from gprojci_suite.inputs import InputSet, LayerTensors

ORIGINAL = (functional.scaled_dot_product_attention,)  # in a tuple: what a module holds itself is replaced
HEADS, SEQ, DIM = 4, 24, 16
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def standard(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def by_name(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return imported_by_name(q, k, v, is_causal=True)


class Model(nn.Module):
    """Two layers of attention; keeps what went in, and the gradient of what came out."""

    def __init__(self, attention: Attention = standard, dtype: torch.dtype = torch.bfloat16, kv_heads: int = HEADS):
        super().__init__()
        torch.manual_seed(0)
        width = HEADS * DIM
        self.attention, self.kv_heads = attention, kv_heads
        sizes = (width, kv_heads * DIM, kv_heads * DIM)
        self.projections = nn.ModuleList([nn.ModuleList([nn.Linear(width, s) for s in sizes]) for _ in range(2)])
        self.to(dtype)
        self.seen: list[list[Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen = []
        for projections in self.projections:
            parts = [
                linear(x).view(x.shape[0], SEQ, -1, DIM).transpose(1, 2)
                for linear in projections  # type: ignore[union-attr]
            ]
            o = self.attention(*parts)
            if o.requires_grad:
                o.retain_grad()
            self.seen.append([*(part.detach() for part in parts), o])
            x = x + o.transpose(1, 2).reshape(x.shape)
        return x


def train(model: Model, step: int, batch: int = 2) -> None:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(batch, SEQ, HEADS * DIM, generator=generator).to(next(model.parameters()).dtype)
    model(x).float().square().mean().backward()


@pytest.fixture(autouse=True)
def nothing_stays_replaced() -> Iterator[None]:
    """Every original is back when a test ends."""
    yield
    assert functional.scaled_dot_product_attention is ORIGINAL[0]
    assert imported_by_name is ORIGINAL[0]


@pytest.mark.parametrize("attention", [standard, by_name])
def test_what_the_layers_saw_is_what_the_file_holds(tmp_path: Path, attention: Attention) -> None:
    model = Model(attention)
    seen = {}
    with capture(tmp_path, name="run", layers=[0, 1], steps=[1, 3], provenance={"lr": "0.02"}) as recorder:
        for step in range(5):
            recorder.step(step)
            assert (functional.scaled_dot_product_attention is ORIGINAL[0]) == (step not in (1, 3))
            train(model, step)
            seen[step] = model.seen
    assert recorder.skipped == []
    assert [path.name for path in recorder.written] == ["run-step1.safetensors", "run-step3.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-step1.safetensors", "run-step3.safetensors"]
    for step in (1, 3):
        found = inputs.load(str(tmp_path / f"run-step{step}.safetensors"))
        assert found.causal
        assert found.softmax_scale == DIM**-0.5
        assert {"step": str(step), "lr": "0.02", "kept_heads": "L0: 0 1 2 3; L1: 0 1 2 3"}.items() <= dict(
            found.provenance
        ).items()
        for number, (q, k, v, o) in enumerate(seen[step]):
            layer = found.layers[f"L{number}"]
            assert o.grad is not None
            for got, wanted in ((layer.q, q), (layer.k, k), (layer.v, v), (layer.do, o.grad)):
                assert torch.equal(got, wanted[:1])


def test_a_capture_is_an_input_of_the_suite(tmp_path: Path) -> None:
    """The captured do gives the dq that training saw, by the float64 reference."""
    taken: list[Tensor] = []

    def spying(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q.register_hook(taken.append)
        return standard(q, k, v)

    with capture(tmp_path, layers=[1], steps=[0], batch=2) as recorder:
        recorder.step(0)
        train(Model(spying), 0)
    found = inputs.load(str(recorder.written[0])).layers["L1"]
    exact = reference.attention(found.q, found.k, found.v, found.do, causal=True, softmax_scale=DIM**-0.5)
    assert float((taken[0].double() - exact.dq).norm() / exact.dq.norm()) < 0.02


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize("choose", ["error", "random"])
def test_heads_are_subsampled_with_the_queries_that_share_them(tmp_path: Path, choose: Any) -> None:
    model = Model(grouped, kv_heads=2)
    with capture(tmp_path, layers=[0, 1], steps=[0], heads=1, choose=choose, seed=5) as recorder:
        recorder.step(0)
        train(model, 0)
    found = inputs.load(str(recorder.written[0]))
    kept = dict(part.split(": ") for part in found.provenance["kept_heads"].split("; "))
    for number, (q, k, *_) in enumerate(model.seen):
        head = int(kept[f"L{number}"])
        layer = found.layers[f"L{number}"]
        assert (layer.q.shape[1], layer.k.shape[1]) == (2, 1)
        assert torch.equal(layer.q, q[:1, 2 * head : 2 * head + 2])
        assert torch.equal(layer.k, k[:1, head : head + 1])
    assert found.provenance["kept_of"] == "2 key/value heads of each layer"
    assert found.provenance["chosen"] == f"by {choose}"


def test_heads_by_error_are_the_worst_and_those_near_the_median() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v, do = (torch.randn(1, 6, 64, 32, generator=generator) for _ in range(4))
    offsets = torch.tensor([3.0, 300.0, 10.0, 0.0, 100.0, 30.0])
    k = k + offsets[None, :, None, None]
    item = InputSet("set", {"L0": LayerTensors(*(t.bfloat16() for t in (q, k, v, do)))}, True, 32**-0.5, {})
    errors = expected.dq_error_by_head(selection.EMULATED, item, "L0")
    assert sorted(errors, key=lambda head: -errors[head])[:2] == [1, 4]
    # The median of six lies between the third and the fourth.
    assert selection.kept_heads(item, "L0", 4, "error", "") == [1, 2, 4, 5]
    assert selection.kept_heads(item, "L0", 1, "error", "") == [1]
    assert selection.kept_heads(item, "L0", None, "error", "") == list(range(6))
    drawn = {tuple(selection.kept_heads(item, "L0", 2, "random", str(seed))) for seed in range(20)}
    assert len(drawn) > 5
    assert selection.kept_heads(item, "L0", 2, "random", "7") == selection.kept_heads(item, "L0", 2, "random", "7")


def test_wider_inputs_are_rounded_once_and_it_is_told(tmp_path: Path) -> None:
    model = Model(dtype=torch.float32)
    with capture(tmp_path, layers=[0], steps=[0]) as recorder:
        recorder.step(0)
        train(model, 0)
    found = inputs.load(str(recorder.written[0]))
    assert found.provenance["rounded_from"] == "float32"
    assert torch.equal(found.layers["L0"].q, model.seen[0][0][:1].bfloat16())


def flash_like(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, causal: bool = False, **rest: Any):  # type: ignore[no-untyped-def]
    """As flash-attn lays it out, calling the standard function inside, and returning (o, lse)."""
    o = functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal, scale=softmax_scale
    )
    return o.transpose(1, 2), torch.zeros(1)


def test_any_callable_can_be_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("users_model")
    module.attend = flash_like  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "users_model", module)

    def through(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        laid_out = (t.transpose(1, 2) for t in (q, k, v))
        return module.attend(*laid_out, softmax_scale=0.3, causal=True)[0].transpose(1, 2)  # type: ignore[attr-defined]

    model = Model(through)
    with capture(tmp_path, layers=[0, 1], steps=[0], wrap=[Target("users_model:attend", "bshd")]) as recorder:
        recorder.step(0)
        train(model, 0)
    assert module.attend is flash_like  # type: ignore[attr-defined]
    found = inputs.load(str(recorder.written[0]))
    assert found.softmax_scale == 0.3
    assert found.provenance["function"] == "users_model:attend"
    assert torch.equal(found.layers["L1"].k, model.seen[1][1][:1])
    assert found.layers["L1"].do.shape == (1, HEADS, SEQ, DIM)


def test_flash_attention_is_found_where_it_is_loaded_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("flash_attn_interface")
    module.flash_attn_func = flash_like  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn_interface", module)
    held = types.ModuleType("users_layers")
    held.attend = flash_like  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "users_layers", held)

    def through(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return held.attend(*(t.transpose(1, 2) for t in (q, k, v)), causal=True)[0].transpose(1, 2)  # type: ignore[attr-defined]

    with capture(tmp_path, layers=[0, 1], steps=[0]) as recorder:
        recorder.step(0)
        train(Model(through), 0)
    assert recorder.skipped == [], "the standard function inside is not counted again"
    assert inputs.load(str(recorder.written[0])).provenance["function"] == "flash_attn_interface:flash_attn_func"


def packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool = False,
) -> Tensor:
    """Two sequences one after another, (tokens, heads, head_dim), by the signature of flash_attn_varlen_func."""
    ends = cu_seqlens_q.tolist()
    parts = ([part[begin:end].transpose(0, 1)[None] for part in (q, k, v)] for begin, end in pairwise(ends))
    found = [functional.scaled_dot_product_attention(*part, is_causal=causal)[0] for part in parts]
    return torch.cat(found, 1).transpose(0, 1)


def test_of_packed_sequences_the_first_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("flash_attn_interface")
    module.flash_attn_varlen_func = packed  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn_interface", module)
    ends = torch.tensor([0, 10, SEQ], dtype=torch.int32)

    def through(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        laid_out = (part[0].transpose(0, 1) for part in (q, k, v))
        o = module.flash_attn_varlen_func(*laid_out, ends, ends, 14, 14, causal=True)  # type: ignore[attr-defined]
        return o.transpose(0, 1)[None]  # type: ignore[no-any-return]

    model = Model(through)
    with capture(tmp_path, layers=[0, 1], steps=[0]) as recorder:
        recorder.step(0)
        train(model, 0, batch=1)
    assert recorder.skipped == []
    found = inputs.load(str(recorder.written[0]))
    assert (found.causal, found.provenance["batch"]) == (True, "first 1 of 2")
    for layer, (q, k, v, o) in zip(found.layers.values(), model.seen, strict=True):
        assert o.grad is not None
        for got, wanted in ((layer.q, q), (layer.k, k), (layer.v, v), (layer.do, o.grad)):
            assert torch.equal(got, wanted[:, :, :10])


CAUSAL = torch.ones(SEQ, SEQ, dtype=torch.bool).tril()
CALLS: dict[str, tuple[dict[str, Any], str | None]] = {
    "causal mask as booleans": ({"attn_mask": CAUSAL}, None),
    "causal mask as numbers": ({"attn_mask": torch.zeros(SEQ, SEQ).masked_fill(~CAUSAL, -torch.inf).bfloat16()}, None),
    "no mask": ({}, None),
    "another mask": (
        {"attn_mask": torch.eye(SEQ).bool()},
        "mask",
    ),
    "dropout": ({"is_causal": True, "dropout_p": 0.1}, "dropout"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_an_input_set_cannot_hold_are_left_out_and_told(name: str, tmp_path: Path) -> None:
    keywords, reason = CALLS[name]
    model = Model(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **keywords))
    with warnings.catch_warnings(record=True) as caught, capture(tmp_path, layers=[0], steps=[0]) as recorder:
        warnings.simplefilter("always")
        recorder.step(0)
        train(model, 0)
    if reason is None:
        assert recorder.skipped == []
        assert inputs.load(str(recorder.written[0])).causal is (name != "no mask")
    else:
        assert recorder.written == []
        assert reason in recorder.skipped[0]
        assert any(issubclass(w.category, CaptureWarning) and reason in str(w.message) for w in caught)


def test_evaluation_is_not_counted_and_missing_calls_are_told(tmp_path: Path) -> None:
    model = Model()
    with pytest.warns(CaptureWarning, match="called 2 times"), capture(tmp_path, layers=[0, 7], steps=[0]) as recorder:  # noqa: PT031
        recorder.step(0)
        with torch.no_grad():
            model(torch.zeros(2, SEQ, HEADS * DIM).bfloat16())
        train(model, 0)
    assert list(inputs.load(str(recorder.written[0])).layers) == ["L0"]
    assert float(inputs.load(str(recorder.written[0])).layers["L0"].q.float().norm()) > 0


def test_layers_that_differ_in_scale_are_not_mixed(tmp_path: Path) -> None:
    scales = iter([0.1, 0.2])
    model = Model(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, scale=next(scales)))
    with (  # noqa: PT031
        pytest.warns(CaptureWarning, match="L1: differs from L0"),
        capture(tmp_path, layers=[0, 1], steps=[0]) as recorder,
    ):
        recorder.step(0)
        train(model, 0)
    assert list(inputs.load(str(recorder.written[0])).layers) == ["L0"]


def test_a_forward_pass_without_a_backward_pass_leaves_nothing(tmp_path: Path) -> None:
    with (  # noqa: PT031
        pytest.warns(CaptureWarning, match="no gradient arrived"),
        capture(tmp_path, layers=[0], steps=[0]) as recorder,
    ):
        recorder.step(0)
        Model()(torch.zeros(2, SEQ, HEADS * DIM).bfloat16())
    assert recorder.written == []
    assert list(tmp_path.iterdir()) == []


def test_a_loop_that_breaks_leaves_whole_files_only(tmp_path: Path) -> None:
    model = Model()
    with pytest.raises(ZeroDivisionError), capture(tmp_path, layers=[0, 1], steps=[0, 1]) as recorder:  # noqa: PT012
        recorder.step(0)
        train(model, 0)
        recorder.step(1)
        model(torch.zeros(2, SEQ, HEADS * DIM).bfloat16())
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["capture-step0.safetensors"]
    assert functional.scaled_dot_product_attention is ORIGINAL[0]


@pytest.mark.parametrize("where", ["save", "replace"])
def test_what_cannot_be_written_is_told_and_the_loop_goes_on(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        if where == "save":
            args[0].write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(*((exchange, "save") if where == "save" else (Path, "replace")), full)
    with pytest.warns(CaptureWarning, match="no space left"), capture(tmp_path, layers=[0], steps=[0, 1]) as recorder:  # noqa: PT031
        for step in range(2):
            recorder.step(step)
            train(Model(), step)
    assert recorder.written == []
    assert list(tmp_path.iterdir()) == []


def test_nan_is_no_input(tmp_path: Path) -> None:
    model = Model(lambda q, k, v: standard(q, k, v * torch.nan))
    with pytest.warns(CaptureWarning, match="holds NaN or Inf"), capture(tmp_path, layers=[0], steps=[0]) as recorder:  # noqa: PT031
        recorder.step(0)
        train(model, 0)
    assert recorder.written == []
    assert list(tmp_path.iterdir()) == []


def test_compiled_code_is_seen_and_stays_compiled_otherwise(tmp_path: Path) -> None:
    runs: list[int] = []

    def backend(graph: Any, example: Any) -> Any:
        def run(*args: Any) -> Any:
            runs.append(len(args))
            return graph(*args)

        return run

    attention = torch.compile(standard, backend=backend)
    model = Model(attention)
    with capture(tmp_path, layers=[0, 1], steps=[1]) as recorder:
        for step in range(3):
            recorder.step(step)
            before = len(runs)
            train(model, step)
            assert (len(runs) == before) == (step == 1)
    assert torch.equal(inputs.load(str(recorder.written[0])).layers["L0"].q.isfinite().all(), torch.tensor(True))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"layers": []}, "layers"),
        ({"layers": [1, 1]}, "layers"),
        ({"layers": [-1]}, "layers"),
        ({"name": "../up"}, "name"),
        ({"heads": 0}, "heads"),
        ({"batch": 0}, "batch"),
        ({"choose": "best"}, "choose"),
        ({"provenance": {"step": "1"}}, "provenance"),
        ({"wrap": ["nowhere_at_all:f"]}, "nowhere_at_all"),
        ({"wrap": ["torch.nn.functional:no_such"]}, "no_such"),
        ({"wrap": ["attend"]}, "module:function"),
        ({"wrap": ["sys:path"]}, "not callable"),
    ],
)
def test_mistakes_are_found_before_the_loop_starts(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    arguments = {"layers": [0], "steps": [0], **changes}
    with pytest.raises(CaptureError, match=problem), capture(tmp_path, **arguments):
        pytest.fail("the loop must not start")


def test_the_command_that_measures_the_cost_runs() -> None:
    script = Path(__file__).parent.parent / "benchmarks" / "capture_cost.py"
    command = [sys.executable, str(script), "--pairs", "4", "--layers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "not recording",
        "recording two layers",
        "one call of recorder.step",
    ]
