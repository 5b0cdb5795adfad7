"""The alarm: it warns of a model whose keys have drifted, is silent on a calm one, and leaves the loop alone."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gprojci_suite import inputs, reference
from gprojci_suite.capture import CaptureWarning, Reading, Target, capture, watch
from gprojci_suite.capture.response import key_shift_response
from gprojci_suite.capture.rows import row_error
from gprojci_suite.capture.watched_call import WatchedCall
from gprojci_suite.peers import emulated_fa3, emulated_gproj, fp32


def leaky(q: Tensor, k: Tensor, v: Tensor, causal: bool, softmax_scale: float) -> Tensor:
    """What a BF16 kernel computes."""
    return emulated_fa3.attention(q, k, v, causal=causal, softmax_scale=softmax_scale)


def careful(q: Tensor, k: Tensor, v: Tensor, causal: bool, softmax_scale: float) -> Tensor:
    """FP32 attention of the same inputs."""
    with torch.autocast("cpu", enabled=False):  # which would lower the products of float32 again
        return fp32.attention(q.float(), k.float(), v.float(), causal=causal, softmax_scale=softmax_scale).to(q.dtype)


frozen = careful
"""Called with keys that need no gradient."""


class Model(nn.Module):
    """Two attention calls on keys that stand `offset` away from zero."""

    def __init__(self, offset: float, attention: str = "leaky") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = attention
        self.projections = nn.ModuleList(nn.Linear(32, 96) for _ in range(2))
        with torch.no_grad():
            self.projections[1].bias[32:64] += offset * torch.randn(32)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, 32) to a scalar."""
        for projection in self.projections:
            q, k, v = projection(x).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
            k = k.detach() if self.attention == "frozen" else k
            if self.attention == "sdpa":
                o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                o = globals()[self.attention](q, k, v, causal=True, softmax_scale=0.25)
            x = x + o.transpose(1, 2).flatten(2)
        return x.float().square().mean()


def trained(model: nn.Module, steps: int = 4, dtype: torch.dtype | None = torch.bfloat16) -> list[Tensor]:
    """Gradients of some steps on the same data, without any change of weights."""
    x = torch.randn(2, 48, 32, generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is not None):
            loss = model(x)
        loss.backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


WRAP = [f"{__name__}:leaky", f"{__name__}:careful"]


@pytest.mark.parametrize(
    ("offset", "attention", "warns"),
    [(40.0, "leaky", True), (0.0, "leaky", False), (40.0, "careful", False), (0.0, "sdpa", False)],
)
def test_it_warns_of_drifted_keys_alone(
    offset: float, attention: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model, warned = Model(offset, attention), list[Reading]()
    wrap = None if attention == "sdpa" else WRAP
    watcher = watch(model, every=2, on_warning=warned.append, wrap=wrap)
    with caplog.at_level(logging.DEBUG, "gprojci_suite.watch"):
        trained(model)
        watcher.close()
    assert [(reading.step, reading.layer) for reading in watcher.readings] == [(2, 0), (2, 1), (4, 0), (4, 1)]
    assert [(reading.step, reading.layer) for reading in warned] == ([(2, 1)] if warns else [])
    assert len(caplog.records) == len(warned)
    assert ("attention call 1" in caplog.text) is warns


def wrong(q: Tensor, k: Tensor, v: Tensor, causal: bool, softmax_scale: float) -> Tensor:
    """Right values whose gradients are a fifth too large, wherever the keys are."""
    o = careful(q, k, v, causal=causal, softmax_scale=softmax_scale)
    return o.detach() + 1.2 * (o - o.detach())


def test_it_warns_of_a_gradient_that_is_wrong_for_another_reason(caplog: pytest.LogCaptureFixture) -> None:
    watcher = watch(Model(0.0, "wrong"), every=4, wrap=[f"{__name__}:wrong"])
    with caplog.at_level(logging.WARNING, "gprojci_suite.watch"):
        trained(watcher._model)
        watcher.close()
    assert [reading.error for reading in watcher.readings] == pytest.approx([0.2, 0.2], rel=0.05)
    assert max(reading.response for reading in watcher.readings) < 0.01
    assert [record.getMessage().startswith("step 4: dq of attention call") for record in caplog.records] == [True, True]
    assert caplog.text.count("is off by 20%; it moves by 0% when keys are shifted, so it is not the keys' offset") == 2


@pytest.mark.parametrize(("attention", "error"), [("wrong", 0.2), ("careful", 0.0)])
def test_dk_is_watched_where_asked_for(attention: str, error: float, caplog: pytest.LogCaptureFixture) -> None:
    warned = list[Reading]()
    watcher = watch(Model(0.0, attention), every=2, dk=True, on_warning=warned.append, wrap=[f"{__name__}:{attention}"])
    with caplog.at_level(logging.WARNING, "gprojci_suite.watch"):
        trained(watcher._model)
        watcher.close()
    assert [reading.dk_error for reading in watcher.readings] == pytest.approx([error] * 4, abs=0.01)
    assert [(reading.step, reading.layer) for reading in warned] == ([(2, 0), (2, 1)] if error else [])
    said = [record.getMessage() for record in caplog.records if "dk of attention call" in record.getMessage()]
    assert [text.partition(" is off by 20%")[1] for text in said] == ([" is off by 20%"] * 2 if error else [])


def test_dk_may_be_wrong_alone() -> None:
    """Of the published projection, whose dk is FlashAttention's: late-keybias, as the accuracy suite has it."""
    late = inputs.load("late-keybias")
    q, k, v, do = (getattr(late.layers["L1"], name) for name in ("q", "k", "v", "do"))
    scale = late.softmax_scale or 0.0

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return emulated_gproj.attention(q, k, v, causal=True, softmax_scale=scale)

    leaves = [part.clone().requires_grad_() for part in (q, k, v)]
    dq, dk, _ = torch.autograd.grad(attend(*leaves), leaves, do)
    found = WatchedCall(0, attend, True, scale, q, k, v, do, dq, dk).errors(0, dk=True)
    assert found is not None
    assert found.worst("dk", found.largest("dk")) == (0, pytest.approx(0.467, abs=0.001))
    assert max(found.worst(name, found.largest(name))[1] for name in ("dq", "response")) < 0.003


def test_dk_that_is_not_asked_for_or_not_there_is_none() -> None:
    for attention, asked in (("wrong", False), ("frozen", True)):
        watcher = watch(Model(0.0, attention), every=4, dk=asked, wrap=[f"{__name__}:{attention}"])
        trained(watcher._model)
        watcher.close()
        assert [(reading.dk_head, reading.dk_error) for reading in watcher.readings] == [(None, None)] * 2


def attended(q: Tensor, k: Tensor, v: Tensor, do: Tensor, scale: float, causal: bool = True) -> Tensor:
    """dq of an emulated BF16 kernel."""
    leaf = q.clone().requires_grad_()
    o = emulated_fa3.attention(leaf, k, v, causal=causal, softmax_scale=scale)
    return torch.autograd.grad(o, leaf, do)[0]


def relative(dq: Tensor, wanted: Tensor) -> Tensor:
    """Of every head."""
    return (dq.double() - wanted).flatten(2).norm(dim=-1) / wanted.flatten(2).norm(dim=-1)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "seq_q", "seq_k", "causal"),
    [(2, 2, 48, 48, True), (4, 2, 48, 80, True), (2, 1, 80, 48, True), (2, 2, 30, 70, False)],
)
def test_of_a_short_sequence_the_error_is_exact(
    heads: int, kv_heads: int, seq_q: int, seq_k: int, causal: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    q, do = (torch.randn(2, heads, seq_q, 16, generator=generator).bfloat16() for _ in range(2))
    k, v = (torch.randn(2, kv_heads, seq_k, 16, generator=generator).bfloat16() for _ in range(2))
    dq = attended(q, k, v, do, 0.25, causal)
    wanted = reference.attention(q, k, v, do, causal=causal, softmax_scale=0.25).dq
    error, norm = row_error(q, k, v, do, dq, causal=causal, softmax_scale=0.25, seed=0)
    assert torch.allclose(error, relative(dq, wanted), rtol=1e-9)
    assert torch.allclose(norm, wanted.flatten(2).norm(dim=-1), rtol=1e-9)
    dq[0, 1, 40 % seq_q] = float("nan")
    error, _ = row_error(q, k, v, do, dq, causal=causal, softmax_scale=0.25, seed=0)
    assert error.isinf().tolist() == [[head == 1 and batch == 0 for head in range(heads)] for batch in range(2)]


def test_of_a_long_one_it_is_near_also_where_a_shift_shows_nothing() -> None:
    late = inputs.load("late-keybias")
    for tensors in late.layers.values():
        parts = (tensors.q, tensors.k, tensors.v, tensors.do)
        dq = attended(*parts, late.softmax_scale)
        wanted = reference.attention(*parts, causal=True, softmax_scale=late.softmax_scale).dq
        error, _ = row_error(*parts, dq, causal=True, softmax_scale=late.softmax_scale, seed=3)
        assert torch.allclose(error, relative(dq, wanted), rtol=0.25)
    # Every query has one key of its own, far ahead of the others.
    generator = torch.Generator().manual_seed(12)
    k, v, do = (torch.randn(1, 4, 512, 32, generator=generator).bfloat16() for _ in range(3))
    chosen = (torch.rand(512, generator=generator) * torch.arange(1, 513)).long()
    q = (6 * k[:, :, chosen].float()).bfloat16()
    dq = attended(q, k, v, do, 32**-0.5)
    true = relative(dq, reference.attention(q, k, v, do, causal=True, softmax_scale=32**-0.5).dq)
    error, _ = row_error(q, k, v, do, dq, causal=True, softmax_scale=32**-0.5, seed=3)
    assert torch.allclose(error, true, rtol=0.25)
    response, _ = key_shift_response(
        lambda *leaves: emulated_fa3.attention(*leaves, causal=True, softmax_scale=32**-0.5), q, k, v, do, dq
    )
    assert float(true.max()) > 0.03
    assert float(response.max()) < 0.2 * float(true.max())


def test_the_loop_computes_what_it_computed() -> None:
    plain = trained(Model(40.0))
    model = Model(40.0)
    watcher = watch(model, every=1, wrap=WRAP)
    watched = trained(model)
    watcher.close()
    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))
    assert "forward" not in vars(model)
    trained(model)
    assert len(watcher.readings) == 8


class Shared(nn.Module):
    """Keys of one layer in the calls of two, and the queries outside of attention too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.projections = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, 32) to a scalar."""
        k, *queries = (projection(x)[:, None] for projection in self.projections)
        o = x[:, None]
        for q in queries:
            o = o + functional.scaled_dot_product_attention(q, k, value=k, is_causal=True) + 5 * q
        return o.square().mean()


def test_a_gradient_is_that_of_its_call_alone(caplog: pytest.LogCaptureFixture) -> None:
    model = Shared()
    plain = trained(Shared(), 1, None)
    watcher = watch(model, every=1, dk=True)
    watched = trained(model, 1, None)
    watcher.close()
    assert max(max(reading.error, reading.dk_error or 0.0) for reading in watcher.readings) < 1e-5
    assert (len(watcher.readings), caplog.records) == (2, [])
    # Sums of the gradients of several uses, in another order.
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(plain, watched, strict=True))


def test_a_function_that_names_no_parameters_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    watcher = watch(Model(0.0, "sdpa"), every=1, wrap=["torch._C._nn:scaled_dot_product_attention"])
    trained(watcher._model, 1)
    watcher.close()
    assert "cannot be watched" in caplog.text


class Padded(nn.Module):
    """Grouped heads under a mask of padding: bool or added, one for all sequences or one for each."""

    def __init__(self, mask: Tensor, attention: str = "right") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mask, self.attention = mask, attention
        self.projections = nn.ModuleList(nn.Linear(32, width) for width in (64, 32, 32))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, 32) to a scalar."""
        q, k, v = (projection(x).unflatten(-1, (-1, 16)).transpose(1, 2) for projection in self.projections)
        if self.attention == "longer":
            return longer(q, k, v, self.mask).square().mean()
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, enable_gqa=True).square().mean()


CAUSAL = torch.ones(48, 48, dtype=torch.bool).tril()
PADDING = torch.stack([CAUSAL & (torch.arange(48) >= first) for first in (7, 0)])[:, None]
MASKS = [
    PADDING,
    CAUSAL & (torch.arange(48) >= 7),
    torch.where(PADDING | torch.eye(48, dtype=torch.bool), 0.0, torch.finfo(torch.float32).min),
    torch.where(CAUSAL, -0.1 * torch.rand(4, 48, 48), -torch.inf),
]


@pytest.mark.parametrize("mask", MASKS)
def test_under_a_mask(mask: Tensor, caplog: pytest.LogCaptureFixture) -> None:
    model = Padded(mask)
    watcher = watch(model, every=1, dk=True)
    trained(model, 1, None)
    watcher.close()
    (reading,) = watcher.readings
    assert max(reading.error, reading.dk_error or 1.0) < 1e-5
    assert caplog.records == []


def longer(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor) -> Tensor:
    """Right values whose gradients are a fifth too large."""
    o = functional.scaled_dot_product_attention(q, k, v, attn_mask, enable_gqa=True)
    return o.detach() + 1.2 * (o - o.detach())


def test_a_wrong_gradient_is_seen_under_a_mask() -> None:
    model = Padded(PADDING, "longer")
    watcher = watch(model, every=1, dk=True, wrap=[Target(f"{__name__}:longer", torch_mask=True)])
    trained(model, 1, None)
    watcher.close()
    (reading,) = watcher.readings
    assert (reading.error, reading.dk_error) == (pytest.approx(0.2), pytest.approx(0.2))


def test_what_a_mask_of_another_function_means_is_not_guessed(caplog: pytest.LogCaptureFixture) -> None:
    model = Padded(PADDING, "longer")
    watcher = watch(model, every=1, wrap=[f"{__name__}:longer"])
    trained(model, 1, None)
    watcher.close()
    assert watcher.readings == []
    assert "longer: a mask is given that is not the causal one (1)" in caplog.text


LENGTHS = (30, 18)


def packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool,
    seqused_k: Tensor | None = None,
    qv: Tensor | None = None,
) -> Tensor:
    """What a BF16 kernel computes of sequences one after another, (tokens, heads, head_dim)."""
    ends = [bounds.tolist() for bounds in (cu_seqlens_q, cu_seqlens_k)]
    assert [bounds[-1] for bounds in ends] == [len(q), len(k)]
    assert [max_seqlen_q, max_seqlen_k] == [int(bounds.diff().max()) for bounds in (cu_seqlens_q, cu_seqlens_k)]
    found = []
    for place in range(len(ends[0]) - 1):
        parts = zip((q, k, v), (ends[0], ends[1], ends[1]), strict=True)
        of_one = (part[end[place] : end[place + 1]].transpose(0, 1)[None] for part, end in parts)
        found.append(leaky(*of_one, causal=causal, softmax_scale=softmax_scale)[0].transpose(0, 1))
    return torch.cat(found)


class Packed(nn.Module):
    """Attention on drifted keys, of packed sequences or of the first of them in a batch of one."""

    def __init__(self, *, one: bool, **given: Tensor) -> None:
        super().__init__()
        self.one, self.given = one, given
        self.inside = Model(40.0).projections[1]

    def forward(self, x: Tensor) -> Tensor:
        """(tokens, 32) to a scalar."""
        x = x[: LENGTHS[0]] if self.one else x
        q, k, v = self.inside(x).view(-1, 3, 2, 16).unbind(1)
        if self.one:
            o = leaky(*(part.transpose(0, 1)[None] for part in (q, k, v)), causal=True, softmax_scale=0.25)
            return o.float().square().sum()
        ends = torch.tensor([0, LENGTHS[0], sum(LENGTHS)], dtype=torch.int32)
        return packed(q, k, v, ends, ends, 30, 30, 0.25, causal=True, **self.given).float().square().sum()


def readings_of(model: nn.Module, wrap: str | Target) -> list[Reading]:
    watcher = watch(model, every=1, dk=True, wrap=[wrap])
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.randn(sum(LENGTHS), 32, generator=torch.Generator().manual_seed(1)))
    loss.backward()
    watcher.close()
    return watcher.readings


def test_of_packed_sequences_the_first_is_read() -> None:
    (reading,) = readings_of(Packed(one=False), Target(f"{__name__}:packed", "thd"))
    assert reading.error > 0.1
    assert [reading] == readings_of(Packed(one=True), f"{__name__}:leaky")


@pytest.mark.parametrize(
    ("layout", "given", "reason"),
    [
        ("thd", {"seqused_k": torch.tensor([30, 18])}, "seqused_k is set"),
        ("thd", {"qv": torch.zeros(1)}, "qv is set"),
        ("bhsd", {}, "q, k and v are not three tensors of four dimensions"),
    ],
)
def test_packed_sequences_that_cannot_be_read(
    layout: Any, given: dict[str, Tensor], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert readings_of(Packed(one=False, **given), Target(f"{__name__}:packed", layout)) == []
    assert reason in caplog.text


@pytest.mark.parametrize("compiled", [lambda m: torch.compile(m, backend="aot_eager"), lambda m: m])
def test_a_compiled_model(compiled: Callable[[nn.Module], nn.Module]) -> None:
    model = Model(40.0, "sdpa")
    outer = compiled(model)
    if outer is model:
        model.compile(backend="aot_eager")
    watcher = watch(outer, every=3)
    trained(outer, 6)
    watcher.close()
    assert [(reading.step, reading.layer) for reading in watcher.readings] == [(3, 0), (3, 1), (6, 0), (6, 1)]


def strange(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor) -> Tensor:
    """Bounds of a form that nobody foresaw."""
    return leaky(*(part.transpose(0, 1)[None] for part in (q, k, v)), causal=True, softmax_scale=0.25)[0].transpose(
        0, 1
    )


def test_what_nobody_foresaw_does_not_stop_the_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target, bounds = Target(f"{__name__}:strange", "thd"), torch.zeros(2, 2)
    model = nn.Linear(8, 8)
    model.forward = lambda x: strange(*[nn.Linear(8, 8)(x)] * 3, bounds, bounds).sum()  # type: ignore[method-assign]
    watcher = watch(model, every=1, wrap=[target])
    model(torch.randn(4, 2, 8)).backward()
    watcher.close()
    assert "cannot be watched, and nothing will warn of them: strange: ValueError: " in caplog.text
    with capture(tmp_path, layers=[0], steps=[0], wrap=[target]) as recorder:
        recorder.step(0)
        with pytest.warns(CaptureWarning, match="strange: ValueError: "):
            model(torch.randn(4, 2, 8)).backward()
    assert recorder.written == []


class Masked(nn.Module):
    """One tensor as q, k and v of attention: masked, with dropout, cut off, or by no function that is watched."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.projection = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, 16) to a scalar."""
        q = self.projection(x)[:, None]
        if self.how == "unfused":
            return ((q @ q.mT).softmax(-1) @ q).sum()
        mask = torch.zeros(3, 1, dtype=torch.bool) if self.how == "mask" else None
        dropout = 0.1 if self.how == "dropout" else 0.0
        o = functional.scaled_dot_product_attention(q, q, q, mask, dropout, is_causal=self.how == "causal")
        if self.how == "detached":
            o = o.detach() + functional.scaled_dot_product_attention(q, q, q)
        return o.sum()


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("dropout", "step 2: of 1 attention calls 1 cannot be watched, and nothing will warn of them: "),
        ("dropout", "scaled_dot_product_attention: dropout is on (1)"),
        (
            "detached",
            "of 2 attention calls 1 cannot be watched, and nothing will warn of them: its gradient has not",
        ),
        ("unfused", "step 2: no attention call was seen, and nothing will warn of any: name the function"),
        ("causal", ""),
    ],
)
def test_an_alarm_that_is_off_says_so_once(how: str, told: str, caplog: pytest.LogCaptureFixture) -> None:
    model = Masked(how)
    watcher = watch(model, every=2)
    for _ in range(6):
        model(torch.randn(2, 8, 16)).backward()
    watcher.close()
    assert [told in record.getMessage() for record in caplog.records] == ([True] if told else [])
    assert {record.levelname for record in caplog.records} <= {"WARNING"}


class Adapted(nn.Module):
    """A frozen encoder, keys that are trained against its queries, and attention that is trained as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.trained = nn.Linear(16, 16).requires_grad_(False), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, 16) to a scalar."""
        q = self.frozen(x)[:, None]
        encoded = functional.scaled_dot_product_attention(q, q, q)
        k = self.trained(x)[:, None]
        encoded = encoded + functional.scaled_dot_product_attention(q, k, k)
        return (encoded + functional.scaled_dot_product_attention(k.square(), k, k)).sum()


def test_what_has_no_gradient_is_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    model = Adapted()
    watcher = watch(model, every=1)
    model(torch.randn(2, 8, 16)).backward()
    watcher.close()
    assert (len(watcher.readings), caplog.records) == (1, [])


def test_reentrant_checkpointing_hides_every_call(caplog: pytest.LogCaptureFixture) -> None:
    model, inside = nn.Linear(16, 16), Masked("causal")
    model.forward = lambda x: checkpoint(inside, x, use_reentrant=True)  # type: ignore[method-assign]
    watcher = watch(model, every=1)
    model(torch.randn(2, 8, 16, requires_grad=True)).backward()
    watcher.close()
    assert (watcher.readings, "as in reentrant checkpointing, are not seen" in caplog.text) == ([], True)


def test_a_pass_that_was_not_finished_tells_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model = Masked("causal")
    watcher = watch(model, every=1)
    with pytest.raises(RuntimeError):
        model(torch.randn(2, 8, 5))
    model(torch.randn(2, 8, 16)).backward()
    watcher.close()
    assert (len(watcher.readings), caplog.records) == (1, [])


def test_what_is_not_training_is_not_counted() -> None:
    model = Model(40.0)
    watcher = watch(model, every=1, wrap=WRAP)
    with torch.no_grad():
        model(torch.zeros(1, 4, 32))
    model.eval()(torch.zeros(1, 4, 32))
    watcher.close()
    assert watcher.readings == []


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="every"):
        watch(Model(0.0), every=0)
    with pytest.raises(ValueError, match="has no attribute"):
        watch(Model(0.0), wrap=[f"{__name__}:nosuch"])
