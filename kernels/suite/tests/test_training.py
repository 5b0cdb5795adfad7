"""The training suite: equal seeds, what is measured, what is written, and what becomes of runs that end otherwise."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gprojci_suite import cli, inputs
from gprojci_suite.contract import codec
from gprojci_suite.contract.training import (
    TrainingModel,
    TrainingOptimizer,
    TrainingReport,
    TrainingRun,
    TrainingSetup,
)
from gprojci_suite.ending import Ending
from gprojci_suite.training import data, files
from gprojci_suite.training.model import Transformer, parts
from gprojci_suite.training.optimizers import Optimizers
from gprojci_suite.training.run import NO_END, Run, RunSettings

SETUP = TrainingSetup(
    model=TrainingModel(2, 32, 2, 32, "learned", ("q", "k", "v")),
    data=data.Recall().describe(2),
    optimizer=TrainingOptimizer(0.02, 0.003),
    steps=12,
    measure_every=5,
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settings(folder: Path, backend: str = "emulated-fa3", setup: TrainingSetup = SETUP, **changed: Any) -> RunSettings:
    """Of a run in the folder."""
    folder.mkdir(exist_ok=True)
    fixed = {"entry": None, "seed": 0, "device": "cpu", "captures": str(folder / "captures"), "side_by_side": 1}
    rest = {"threads": 1, "seconds": None, "checkpoint_every": 4}
    given = {**fixed, **rest, **changed}
    return RunSettings(name="tiny", setup=setup, backend=backend, folder=str(folder), **given)


def trained(folder: Path, backend: str = "emulated-fa3", setup: TrainingSetup = SETUP, **changed: Any) -> TrainingRun:
    """A run, trained in this process."""
    return Run(settings(folder, backend, setup, **changed), lambda _: None).train(Ending())


def drifted(run: Run) -> Run:
    """The run, its keys of the first layer moved far from zero."""
    with torch.no_grad():
        run.model.blocks[0].k.bias += 40 * torch.randn(32, generator=torch.Generator().manual_seed(1))
    return run


def test_equal_seeds_give_equal_weights_and_data(tmp_path: Path) -> None:
    first, second, other = (
        Run(settings(tmp_path / f"{backend}{seed}", backend, seed=seed), lambda _: None)
        for backend, seed in (("emulated-fa3", 3), ("fp32", 3), ("fp32", 4))
    )
    assert first.initial_weights == second.initial_weights != other.initial_weights
    for one, another in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, another)
    for step in (1, 2):
        batches = [run.data.batch(run.settings.seed, step, 2, 32) for run in (first, second, other)]
        assert torch.equal(batches[0][0], batches[1][0])
        assert torch.equal(batches[0][1], batches[1][1])
        assert not torch.equal(batches[0][0], batches[2][0])


def test_drifted_keys_leave_all_else_as_it_was() -> None:
    plain, drifted = (Transformer(replace(SETUP.model, key_bias_std=std), 3) for std in (0.0, 50.0))
    tokens, targets = data.Recall().batch(3, 1, 2, 32)
    scale = float(torch.tensor(16.0).rsqrt())

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)

    same = dict(plain.named_parameters())
    for name, parameter in drifted.named_parameters():
        if name.endswith("k.bias"):
            assert 25 < float(parameter.detach().std()) < 100
        else:
            assert torch.equal(parameter, same[name])
    assert not torch.equal(drifted.blocks[0].k.bias, drifted.blocks[1].k.bias)
    losses = [model.double()(tokens, targets, attend, parts("cpu", False)) for model in (plain, drifted)]
    assert torch.allclose(*losses)


def test_the_library_is_text_that_follows_itself() -> None:
    library = data.Library()
    tokens, targets = library.batch(0, 1, 2, 64)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert bytes(tokens[0].tolist()) in library.text.numpy().tobytes()
    assert library.describe(2).size_bytes == library.text.numel() > 2**20


def test_recall_asks_for_what_was_seen() -> None:
    tokens, targets = data.Recall().batch(0, 1, 1, 128)
    known: dict[int, int] = {}
    asked = 0
    for place in range(0, 128, 2):
        key, value = int(tokens[0, place]), int(tokens[0, place + 1])
        assert int(targets[0, place]) == known.get(key, data.IGNORED)
        assert int(targets[0, place + 1]) == data.IGNORED
        asked += key in known
        known[key] = value
    assert asked > 10


@pytest.mark.parametrize(
    ("compiled", "first"), [(True, "step 1/5 under way, compiling"), (False, "step 1/5 under way")]
)
def test_a_run_says_what_its_first_step_does(tmp_path: Path, compiled: bool, first: str) -> None:
    said: list[str] = []
    setup = replace(SETUP, model=replace(SETUP.model, compiled=compiled), steps=5)
    Run(settings(tmp_path / "run", "fp32", setup), said.append).train(Ending())
    assert said[0] == first
    assert said[1].startswith("step 1/5 took ")
    assert said[2].startswith("step 5/5 loss ")


def test_what_a_run_reports(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    assert (run.status, run.steps, run.detail) == ("completed", 12, None)
    assert run.measured_steps == (5, 10, 12)
    assert run.curve.steps == tuple(range(1, 13))
    assert run.final_loss == pytest.approx(sum(run.curve.loss) / 12, rel=1e-4)
    assert run.largest_gradient_norm == pytest.approx(max(run.curve.gradient_norm), rel=1e-4)
    assert run.step_seconds is not None and run.step_seconds > 0  # noqa: PT018
    for layer in run.layers:
        whole, parts = layer.gradient_norm, (layer.gradient_norm_q, layer.gradient_norm_k, layer.gradient_norm_v)
        assert all(sum(part[i] ** 2 for part in parts) < whole[i] ** 2 for i in range(3))  # type: ignore[index]
        assert all(0.001 < value < 0.2 for value in layer.dq_error_worst or ())
    assert not (tmp_path / "run" / files.CHECKPOINT).exists()
    assert codec.encode(files.load_run(tmp_path / "run")) == codec.encode(run)


def test_drifted_keys_show_in_the_backend_that_leaks(tmp_path: Path) -> None:
    found = {}
    for backend in ("emulated-fa3", "emulated-gproj", "fp32"):
        run = Run(settings(tmp_path / backend, backend, replace(SETUP, steps=1, capture_threshold=0.1)), lambda _: None)
        found[backend] = drifted(run).train(Ending())
    first = {backend: run.layers[0] for backend, run in found.items()}
    leaks, gproj, fp32 = first["emulated-fa3"], first["emulated-gproj"], first["fp32"]
    assert leaks.key_offset_worst == fp32.key_offset_worst
    assert leaks.key_offset_worst[0] > 50  # type: ignore[index]
    assert leaks.dq_error_worst[0] > 0.1 > 0.02 > gproj.dq_error_worst[0] > fp32.dq_error_worst[0]  # type: ignore[index]
    assert leaks.row_sum_leak[0] == pytest.approx(leaks.dq_error_worst[0], rel=0.1)  # type: ignore[index]
    assert leaks.symmetry_response[0] == pytest.approx(leaks.dq_error_worst[0], rel=0.5)  # type: ignore[index]
    assert [run.alarm_step for run in found.values()] == [1, None, None]
    assert [len(run.captures) for run in found.values()] == [1, 0, 0]
    written = found["emulated-fa3"].captures[0]
    item = inputs.load(str(tmp_path / "emulated-fa3" / "captures" / written.file))
    assert item.content_hash() == written.content_hash
    assert item.describe().statistics[0].offset_spread > 50


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    setup = replace(SETUP, steps=2000, measure_every=50)
    there = settings(tmp_path / "killed", setup=setup, checkpoint_every=5)
    file = tmp_path / "killed" / files.SETTINGS
    file.write_text(codec.dumps(codec.encode(there)))
    command = [sys.executable, "-m", "gprojci_suite.training.worker", str(file), str(os.getpid())]
    worker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while (run := files.load_run(tmp_path / "killed")) is None and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert run is not None
    assert (run.status, run.detail) == ("ended_early", NO_END)
    resumed = Run(there, lambda _: None)
    done = len(resumed.series.losses)
    assert done >= 5
    assert done % 5 == 0
    whole = Run(settings(tmp_path / "whole", setup=setup), lambda _: None)
    for step in range(1, done + 4):
        whole._step(step, measured=False)
        if step > done:
            resumed._step(step, measured=False)
    whole._flush()
    resumed._flush()
    assert resumed.series.losses == whole.series.losses
    assert resumed.series.norms == whole.series.norms


def test_a_run_tells_which_code_it_was_computed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "of_this_test.py"
    own.write_text("from gprojci_suite.peers.sdpa_math import attention\n")
    monkeypatch.chdir(tmp_path)
    ours = {"backend": "mine", "entry": "of_this_test:attention"}
    begun = Run(settings(tmp_path / "run", **ours), lambda _: None)
    begun._step(1, measured=False)
    begun._flush()
    begun._save()
    first = begun.found("ended_early", "ended").revision
    assert first is not None
    assert first.startswith("file-")
    assert trained(tmp_path / "run", **ours).revision == first
    begun._save()
    own.write_text("from gprojci_suite.peers.sdpa_math import attention  # another\n")
    both = trained(tmp_path / "run", **ours).revision
    assert both is not None
    assert both.startswith(f"{first}, file-")
    assert trained(tmp_path / "peer").revision is None


def test_a_run_that_is_ended_can_be_finished(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole")
    ended = Run(settings(tmp_path / "ended"), lambda _: None)
    ended._step(1, measured=False)
    run = ended.train(Ending(seconds=0))
    assert (run.status, run.detail, run.steps) == ("ended_early", "the session's 0 s were over", 1)
    again = trained(tmp_path / "ended")
    assert again.curve.loss == whole.curve.loss
    assert again.layers == whole.layers


@pytest.mark.parametrize(
    ("rate", "every", "reason"), [(1e30, 1000, "nan at step"), (1e30, 4, "nan at step"), (3.0, 1000, "at first")]
)
def test_a_run_that_diverges_says_so(tmp_path: Path, rate: float, every: int, reason: str) -> None:
    optimizer = TrainingOptimizer(rate, min(rate, 1e6), warm_up=30)
    run = trained(tmp_path / "run", "fp32", replace(SETUP, steps=200, measure_every=every, optimizer=optimizer))
    assert run.status == "diverged"
    assert run.detail is not None
    assert reason in run.detail
    assert run.steps < 200
    assert codec.encode(codec.decode(TrainingRun, codec.encode(run))) == codec.encode(run)


@pytest.mark.parametrize(("lost", "steps", "measured"), [(False, 5, (5,)), (True, 4, ())])
def test_a_run_that_an_exception_breaks_off_keeps_what_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool, steps: int, measured: tuple[int, ...]
) -> None:
    """In the step that is measured; `lost` is a GPU from which no loss can be had any more."""

    def fail(*_: object) -> None:
        raise RuntimeError("no more")

    def step(number: int) -> None:
        if number == 5:
            if lost:
                monkeypatch.setattr(run, "_flush", fail)
            fail()
        original(number)

    run = Run(settings(tmp_path / "run"), lambda _: None)
    original = run.optimizers.step
    monkeypatch.setattr(run.optimizers, "step", step)
    with pytest.raises(RuntimeError, match="no more"):
        run.train(Ending())
    found = run.broken_off("unsupported", "no more")
    assert (found.status, found.steps, found.measured_steps) == ("failed", steps, measured)
    assert codec.encode(codec.decode(TrainingRun, codec.encode(found))) == codec.encode(found)


def test_a_run_that_took_no_step_is_what_it_is_told_to_be(tmp_path: Path) -> None:
    run = Run(settings(tmp_path / "run"), lambda _: None).broken_off("unsupported", "no such mask")
    assert (run.status, run.detail, run.steps) == ("unsupported", "no such mask", 0)


@pytest.mark.parametrize(
    "model",
    [
        {"positions": "rotary", "biases": ()},
        {"qk_norm": True},
        {"compiled": True},
        {"softmax_temperature": 0.25},
    ],
)
def test_switches_of_the_model_train(tmp_path: Path, model: dict[str, Any]) -> None:
    optimizer = replace(SETUP.optimizer, muon_rate=None, warm_up=2, bias_rate=0.01, weight_decay=0.1)
    setup = replace(SETUP, model=replace(SETUP.model, **model), optimizer=optimizer, steps=4, measure_every=2)
    run = trained(tmp_path / "run", "fp32", setup)
    assert run.status == "completed"
    assert all(value < 1e-3 for layer in run.layers for value in layer.dq_error_worst or ())


def test_qk_clip_brings_logits_down(tmp_path: Path) -> None:
    logits = {}
    for clip in (None, 1.0):
        setup = replace(SETUP, model=replace(SETUP.model, qk_clip=clip), steps=3, measure_every=1)
        run = drifted(Run(settings(tmp_path / f"{clip}", "fp32", setup), lambda _: None)).train(Ending())
        logits[clip] = run.layers[0].largest_logit
    assert logits[None][0] == logits[1.0][0] > 5  # type: ignore[index]
    assert logits[1.0][2] < 2 < logits[None][2]  # type: ignore[index]


def test_warm_up_and_the_biases_rate(tmp_path: Path) -> None:
    optimizer = TrainingOptimizer(0.02, 0.003, bias_rate=0.3, warm_up=10)
    run = Run(settings(tmp_path / "run", "fp32", replace(SETUP, optimizer=optimizer)), lambda _: None)
    run._step(5, measured=False)
    rates = [group["lr"] for one in run.optimizers.all for group in one.param_groups]
    assert rates == pytest.approx([0.01, 0.0015, 0.15])
    assert float(run.model.blocks[0].q.bias.detach().abs().max()) == pytest.approx(0.15, rel=0.01)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "deadly.py").write_text("import os\ndef attention(q, k, v, **_):\n    os._exit(7)\n")
    size = "--layers 1 --width 16 --heads 1 --sequence 16 --batch 1 --steps 3 --measure-every 2 --data recall"
    words = [
        "train",
        "tiny",
        "--directory",
        "runs",
        "--json",
        "out.json",
        *size.split(),
        "--side-by-side",
        "3",
        "--shared-with",
        "2",
    ]
    more = ["--backends", "fp32,fa3,dies", "--backend-entry", "dies=deadly:attention"]
    assert cli.main([*words, *more]) == 1
    report = TrainingReport.loads((tmp_path / "out.json").read_text())
    runs = {run.backend: run for run in report.runs}
    assert {name: run.status for name, run in runs.items()} == {
        "dies": "failed",
        "fa3": "unsupported",
        "fp32": "completed",
    }
    assert (runs["dies"].detail or "").startswith("the process ended with status 7: step 1/3 under way\nloading\n")
    assert runs["fp32"].side_by_side == 5
    assert runs["fp32"].step_seconds is None
    assert report.setup.model.parameters == sum(p.numel() for p in Transformer(report.setup.model).parameters())
    assert "fp32" in capsys.readouterr().out
    # The directory is not written to again unasked, nor under another setup.
    assert cli.main([*words, "--backends", "fp32"]) == 2
    assert "--resume" in capsys.readouterr().err
    assert cli.main([*words, "--backends", "fp32", "--resume", "--qk-norm"]) == 2
    assert "setup.model.qk_norm = False, not True" in capsys.readouterr().err
    # What is completed is not trained again.
    before = (tmp_path / "runs" / "fp32-seed0" / files.RUN).stat().st_mtime_ns
    cli.main([*words, "--backends", "fp32", "--resume"])
    assert (tmp_path / "runs" / "fp32-seed0" / files.RUN).stat().st_mtime_ns == before
    assert len(json.loads((tmp_path / "out.json").read_text())["runs"]) == 3
    # Nor is what another report has, of the same setup and hardware; what did not finish there is trained.
    capsys.readouterr()
    elsewhere = [word if word != "runs" else "others" for word in words]
    taken = [*elsewhere, "--backends", "fp32,fp32-fast", "--with-runs-of", "out.json"]
    assert cli.main([*taken, "--softmax-temperature", "2"]) == 2
    assert "out.json holds runs with setup.model.softmax_temperature = 1.0, not 2.0" in capsys.readouterr().err
    other = json.loads((tmp_path / "out.json").read_text())
    other["environment"]["hardware"] = "x1"
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert cli.main([*taken, "--with-runs-of", "other.json"]) == 2
    assert "other.json holds runs of x1" in capsys.readouterr().err
    assert not (tmp_path / "others").exists()
    assert cli.main(taken) == 0
    both = TrainingReport.loads((tmp_path / "out.json").read_text())
    assert {run.backend: run.status for run in both.runs} == {"fp32": "completed", "fp32-fast": "completed"}
    assert next(run for run in both.runs if run.backend == "fp32") == runs["fp32"]
    assert "--with-runs-of" not in both.repro


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_replayed_steps_are_those_of_muon() -> None:
    def weights(*, replay: bool) -> list[Tensor]:
        model = Transformer(TrainingModel(2, 64, 2, 32, "learned", ("q", "k", "v"))).to("cuda")
        optimizers = Optimizers(model, TrainingOptimizer(0.02, 0.003, warm_up=3), replay=replay)
        draw = torch.Generator("cuda").manual_seed(0)
        for step in range(1, 9):
            optimizers.zero_grad()
            factors = [torch.randn(p.shape, generator=draw, device="cuda") for p in model.parameters()]
            loss = torch.stack([(p * f).sum() for p, f in zip(model.parameters(), factors, strict=True)]).sum()
            torch.autograd.backward(loss)
            optimizers.step(step)
        return list(model.parameters())

    assert all(torch.equal(*pair) for pair in zip(weights(replay=True), weights(replay=False), strict=True))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--backends", "nosuch"], "no such peer"),
        ([], "--backends"),
        (["--backends", "fp32", "--seeds", "x"], "--seeds"),
        (["--backends", "fp32", "--biases", "q,w"], "--biases"),
        (["--backends", "fp32", "--width", "10", "--heads", "3"], "model.width"),
        (["--backends", "fp32", "--steps", "0"], "setup"),
        (["--backends", "fp32", "--key-bias-std", "1", "--biases", "q"], "model.key_bias_std"),
        (["--backends", "fp32", "--muon-rate", "-1"], "optimizer.muon_rate"),
        (["--backends", "fp32", "--side-by-side", "0"], "--side-by-side"),
        (["--backend-entry", "x"], "--backend-entry"),
    ],
)
def test_wrong_words_are_refused(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "runs"
    assert cli.main(["train", "tiny", "--directory", str(directory), "--data", "recall", *words]) == 2
    assert message in capsys.readouterr().err
    assert not directory.exists()
