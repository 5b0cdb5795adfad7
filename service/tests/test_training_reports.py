"""Training runs: reported again and again by several processes, kept as one story, checked, listed, written out."""

from __future__ import annotations

import csv
import gzip
import io
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import training_example as example
from click.testing import CliRunner
from sqlalchemy import select

from gprojci_service.cli import cli
from gprojci_service.models import Notification, NotificationChannel, Project, TrainingRun
from gprojci_service.training import service as training
from gprojci_service.training.losses import Losses, parts_from
from gprojci_service.training.summary import Spread, furthest, largest, summaries
from gprojci_suite.contract.training import Curve, TrainingReport


def put(service, report, name=None, headers=None):
    content = report if isinstance(report, bytes) else report.dumps().encode()
    return service.client.put(
        f"/api/v1/training/{name or getattr(report, 'name', 'keybias')}",
        content=content,
        headers=service.write_headers if headers is None else headers,
    )


def shortened(run, steps):
    """The run as it was reported when it had taken so many steps."""
    return replace(
        run,
        status="ended_early",
        detail="still training",
        steps=steps,
        curve=Curve((steps,), (3.0,), (1.0,), (0.05,)),
        measured_steps=(),
        layers=(),
        captures=(),
    )


def test_processes_tell_one_story_and_the_same_report_changes_nothing(service):
    fa3, other, fp32, last = example.report().runs
    first = put(service, example.report((shortened(fa3, 20),)))
    assert first.status_code == 201, first.text
    command = "gprojci-suite train keybias --backends fp32"
    assert put(service, replace(example.report((fp32, last)), repro=command)).status_code == 200
    grown = put(service, example.report((fa3, other)))
    assert [entry["status"] for entry in grown.json()["runs"]] == ["completed"] * 4
    again = put(service, example.report((other, fa3)))
    assert again.json()["sent_at"] == grown.json()["sent_at"]
    late = put(service, example.report((shortened(fa3, 30),)))
    assert late.json()["older"] == ["emulated-fa3 with seed 0"]
    whole = service.client.get("/api/v1/training/keybias").json()
    kept = TrainingReport.from_json(whole)
    assert kept.repro.splitlines() == [example.report().repro, command]
    runs = tuple(sorted(kept.runs, key=lambda run: (run.backend, run.seed)))
    assert replace(kept, runs=runs, repro=example.report().repro) == example.report()
    anew = replace(example.report((shortened(fa3, 10),)), created_at="2026-11-30T10:00:00+00:00")
    assert put(service, anew).json()["older"] == []
    assert service.client.get("/api/v1/training/keybias").json()["runs"][0]["steps"] == 10
    assert [entry["name"] for entry in service.client.get("/api/v1/training").json()] == ["keybias"]


def test_the_summary_pairs_seeds_and_compares_where_both_were(service):
    fa3, other, fp32, last = example.report().runs
    times = (*(0.06,) * (len(fa3.curve.steps) - 4), *(0.04,) * 4)
    flat = Curve((20, 40), (3.0, 2.5), (1.0, 1.0))
    runs = (
        replace(fa3, final_loss=2.5, largest_gradient_norm=900.0, curve=replace(fa3.curve, step_seconds=times)),
        replace(other, status="diverged", detail="loss is NaN", final_loss=math.nan, curve=flat),
        replace(fp32, final_loss=2.0),
        shortened(last, 20),
        not_begun("unsupported"),
    )
    put(service, example.report(runs))
    answer = service.client.get("/api/v1/training/keybias/summary").json()
    assert answer["reference"] == "fp32"
    fa3, fp32, absent = answer["backends"]
    assert fa3["final_loss"] == {"middle": 2.5, "low": 2.5, "high": "NaN"}
    assert fa3["loss_difference"] == {"middle": 0.25, "low": 0.0, "high": 0.5}
    assert fa3["compared_at"] == {"middle": 30, "low": 20, "high": 40}
    assert fa3["largest_gradient_norm"]["high"] == 900
    assert fa3["late_gradient_norm"]["high"] == 1.5
    assert fa3["fast_step_seconds"] == {"middle": 0.04, "low": 0.04, "high": 0.04}
    assert (fp32["fast_step_seconds"]["low"], absent["fast_step_seconds"]) == (0.05, None)
    assert (fa3["alarm_step"]["middle"], fa3["alarm_runs"]) == (40, 2)
    assert (fa3["parted_step"], fa3["parted_runs"]) == (None, 0)
    assert (fp32["alarm_step"], fp32["alarm_runs"]) == (None, 0)
    assert fa3["final_dq_error"]["low"] == pytest.approx(0.002 * 8**3)
    assert (fp32["final_loss"], fp32["loss_difference"]) == ({"middle": 2.0, "low": 2.0, "high": 2.0}, None)
    assert fp32["statuses"] == {"completed": 1, "ended_early": 1}
    assert (absent["statuses"], absent["final_loss"], absent["steps"]["high"]) == ({"unsupported": 1}, None, 0)


def test_a_loss_parts_where_it_stays_above():
    calm = (3.0,) * 80
    once = (3.0,) * 20 + (3.5,) * 10 + calm[:50]
    for_good = once[:40] + (3.09,) * 10 + (3.11,) * 30
    assert [parts_from(losses(own), losses(calm), 0.1) for own in (calm, once, for_good)] == [None, None, 52]
    assert parts_from(losses(for_good[:60]), losses(calm), 0.1) == 51  # as far as both go, in finer stretches
    assert parts_from(losses((*for_good[:60], math.nan)), losses(calm), 0.1) == 51
    assert parts_from(losses(()), losses(calm), 0.1) is None


def test_a_run_that_broke_down_has_parted_at_the_latest_then():
    fa3, other, fp32, last = example.report().runs
    broken = replace(
        fa3, status="diverged", detail="the loss is NaN", steps=20, curve=Curve((10, 20), (1.0, math.nan), (1.0, 1.0))
    )
    above = replace(other, curve=replace(other.curve, loss=tuple(loss + 0.2 for loss in other.curve.loss)))
    found = summaries(example.report((broken, above, fp32, last)))[0]
    assert (found.parted_step, found.parted_runs) == (Spread(10.5, 1, 20), 2)


def test_the_run_furthest_from_its_fp32_run_is_found():
    losses = {("fa3", 0): 2.5, ("fa3", 1): 3.0, ("gproj", 0): 1.1, ("fa4", 2): 9.0, ("fp32", 0): 1.0, ("fp32", 1): 2.0}
    assert furthest(losses) == ("fa3", 1.5)
    assert furthest({key: loss for key, loss in losses.items() if key[0] != "fp32"}) is None
    assert furthest({**losses, ("gproj", 1): math.nan})[0] == "gproj"
    assert largest([("fa3", 0.5), ("gproj", 0.1), ("fa4", 0.4)]) == ("fa3", 0.5)
    assert largest([]) is None


def losses(values):
    """Of a run whose curve has a point for each step."""
    return Losses(Curve(tuple(range(1, len(values) + 1)), values, (1.0,) * len(values)))


def not_begun(status):
    """A run that took no step."""
    run = shortened(example.run("fa4", 0, 1.0), 0)
    none = {"final_loss": None, "final_steps": 0, "largest_gradient_norm": None, "step_seconds": None}
    return replace(run, status=status, detail="needs a GPU", curve=Curve((), (), ()), **none)


def test_what_does_not_belong_to_the_story_is_refused_whole(service):
    put(service, example.report())
    for change, word in (
        ({"setup": replace(example.setup(), measure_every=20)}, "setup.measure_every"),
        ({"ruler": None}, "ruler"),
        ({"runs": (replace(example.run("gproj", 0, 1.0), initial_weights="sha256:x"),)}, "other weights"),
    ):
        answer = put(service, replace(example.report(), **change))
        assert (answer.status_code, answer.json()["error"]) == (409, "TrainingDiffers")
        assert word in answer.json()["detail"]
    assert len(service.client.get("/api/v1/training/keybias").json()["runs"]) == 4


def test_what_is_no_report_is_refused_with_the_reason(service):
    text = example.report().dumps()
    for body, words in (
        (b"\xff", "UTF-8"),
        (b"{", "not a training report"),
        (b'{"schema_version": 1}', "schema_version"),
        (example.report(name="other").dumps().encode(), "send it to /training/other"),
        (text.replace("emulated-fa3", "a\\u0000b").encode(), "NUL"),
        (text.replace("emulated-fa3", "a\\ud800b").encode(), "surrogates"),
        (text.replace('"seed": 1', f'"seed": {2**63}').encode(), "64 bits"),
    ):
        answer = put(service, body)
        assert answer.status_code == 422, answer.text
        assert words in answer.json()["detail"]
    assert service.client.get("/api/v1/training").json() == []


def test_only_a_writer_sends_and_removes_and_not_too_much(service):
    assert put(service, example.report(), headers={}).status_code == 401
    assert put(service, example.report(), headers=service.worker_headers).status_code == 403
    assert put(service, example.report()).status_code == 201
    assert service.client.delete("/api/v1/training/keybias").status_code == 401
    assert service.client.delete("/api/v1/training/keybias", headers=service.write_headers).status_code == 204
    gone = service.client.get("/api/v1/training/keybias")
    assert (gone.status_code, gone.json()["error"]) == (404, "TrainingNotFound")
    many = tuple(shortened(example.run("gproj", seed, 1.0), 20) for seed in range(60))
    assert put(service, example.report(many)).status_code == 201
    more = put(service, example.report(tuple(replace(run, backend="fa3") for run in many)))
    assert (more.status_code, more.json()["error"]) == (422, "TrainingInvalid")
    largest = max(len(example.report((run,), "large").dumps()) for run in example.report().runs)
    service.app.state.settings = service.settings.model_copy(update={"max_report_bytes": largest})
    for run, status in zip(example.report().runs[1:3], (201, 413), strict=True):
        assert put(service, example.report((run,), "large")).status_code == status
    service.app.state.settings = service.settings.model_copy(update={"max_report_bytes": 1000})
    assert put(service, example.report()).status_code == 413


def test_processes_that_send_at_once_all_tell_their_part(service):
    runs = example.report().runs

    def tell(run):
        with service.context.database.session(writes=True) as session:
            text = example.report((run,)).dumps()
            return training.take(session, "keybias", text, sent_by="u", limit=2**20).new

    with ThreadPoolExecutor(len(runs)) as pool:
        assert sorted(pool.map(tell, runs)) == [False] * 3 + [True]
    assert len(service.client.get("/api/v1/training/keybias").json()["runs"]) == 4


def test_runs_of_an_unknown_format_say_so(service):
    put(service, example.report())
    with service.context.database.session(writes=True) as session:
        session.query(TrainingRun).first().body = gzip.zlib.compress(b'{"kind": 2}')
    for address in ("/api/v1/training/keybias", "/training/keybias"):
        answer = service.client.get(address)
        assert answer.status_code == 409
        assert "has a format that this version does not read" in answer.text


@pytest.fixture
def at_service(service, monkeypatch):
    """Has the commands speak to the application in this process."""
    monkeypatch.setattr("gprojci_service.client.httpx.Client", lambda base_url, headers, timeout: service.client)
    service.client.base_url = "http://testserver/api/v1"
    service.client.headers.update(service.write_headers)

    def run(*arguments):
        return CliRunner().invoke(cli, ["training", *arguments])

    return run


def test_the_commands_send_a_directory_show_export_and_remove(at_service, tmp_path):
    fa3, other, *calm = example.report().runs
    (tmp_path / "fa3.json").write_text(example.report((fa3, other)).dumps())
    (tmp_path / "fp32.json.gz").write_bytes(gzip.compress(example.report(tuple(calm)).dumps().encode()))
    (tmp_path / "bench.json").write_text('{"schema_version": 1}')
    done = at_service("send", str(tmp_path))
    assert (done.exit_code, done.output) == (0, "http://testserver/training/keybias\n")
    assert "40 of 40  emulated-fa3, fp32" in at_service("list").output
    shown = at_service("show", "keybias").output
    assert "emulated-fa3  2      2 completed" in shown
    assert "102%" in shown
    file = tmp_path / "series.csv"
    assert at_service("export", "keybias", "--format", "csv", "-o", str(file)).exit_code == 0
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    first = {"backend": "emulated-fa3", "seed": "0", "step": "2", "layer": "", "quantity": "loss"}
    assert {**first, "value": str(fa3.curve.loss[0])} == rows[0]
    of_run = [row for row in rows if (row["backend"], row["seed"]) == ("fp32", "1")]
    assert len(of_run) == 3 * 20 + 2 * 15 * 4
    whole = at_service("export", "keybias").output
    assert len(TrainingReport.loads(whole).runs) == 4
    assert at_service("remove", "keybias").output == "training keybias is removed\n"
    assert at_service("show", "keybias").exit_code == 2


def test_a_training_is_checked_and_what_cannot_be_told_is_wrong(at_service, tmp_path):
    fa3, other, *calm = example.report().runs
    mine = [replace(run, backend="mine", final_loss=run.final_loss + 0.2 * run.seed) for run in calm]
    broken = replace(calm[0], backend="half", status="failed", detail="it died", measured_steps=(), layers=())
    file = _written(tmp_path / "t.json", example.report((fa3, other, *calm, *mine, broken)).dumps())
    assert at_service("send", file).exit_code == 0
    assert at_service("check", "keybias", "--backend", "fp32").output.splitlines()[0] == "fp32: nothing is wrong"
    done = at_service("check", "keybias")
    assert done.exit_code == 1
    assert done.output.splitlines()[:3] == [
        "emulated-fa3: dQ error in the end 102%, limit 1%",
        "mine: its loss ends 0.2000 above that of FP32, limit 0.1",
        "half: 1 failed; its dQ was not measured",
    ]
    assert at_service("check", "keybias", "--backend", "mine", "--loss", "0.3").exit_code == 0
    assert at_service("check", "keybias", "--backend", "emulated-fa3", "--dq-error", "2").exit_code == 0
    other = at_service("check", "keybias", "--backend", "fa3")
    assert (other.exit_code, "has no runs of fa3; it has emulated-fa3, fp32, mine, half" in other.output) == (2, True)
    alone = _written(tmp_path / "alone.json", example.report((fa3,), "alone").dumps())
    assert at_service("send", alone).exit_code == 0
    assert "emulated-fa3: no FP32 run stands beside seed 0; dQ error" in at_service("check", "alone").output
    nothing = {"steps": 0, "final_steps": 0, "final_loss": None, "largest_gradient_norm": None, "step_seconds": None}
    lost = replace(mine[0], status="failed", detail="it died", **nothing)
    lost = replace(lost, curve=Curve((), (), ()), measured_steps=(), layers=())
    few = _written(tmp_path / "few.json", example.report((*mine[1:], lost, calm[0]), "few").dumps())
    assert at_service("send", few).exit_code == 0
    assert at_service("check", "few").output.startswith("mine: 1 failed; no FP32 run stands beside seed 1")
    lost = _written(tmp_path / "lost.json", example.report((lost, calm[0]), "lost").dumps())
    assert at_service("send", lost).exit_code == 0
    assert at_service("check", "lost").output.startswith("mine: 1 failed; its loss cannot be compared; its dQ was not")


def test_a_check_tells_the_channels_of_a_project_where_anything_is_wrong(at_service, service, tmp_path):
    fa3, other, *calm = example.report().runs
    half = replace(calm[0], backend="half", status="failed", detail="it died")
    file = _written(tmp_path / "t.json", example.report((fa3, other, *calm, half)).dumps())
    assert at_service("send", file).exit_code == 0
    unknown = at_service("check", "keybias", "--tell", "o/r")
    assert (unknown.exit_code, "o/r" in unknown.output) == (2, True)
    with service.context.database.session(writes=True) as session:
        project = Project(name="o/r", clone_url="https://github.com/o/r.git")
        session.add(project)
    alone = at_service("check", "keybias", "--tell", "o/r")
    assert "told: nobody: no channel of o/r takes training.wrong" in alone.output
    with service.context.database.session(writes=True) as session:
        shared = {"project_id": project.id, "kind": "webhook", "url": "https://example.org/", "secret": "whsec_"}
        for name, events in (("night", None), ("gate", ["gate.failed"])):
            session.add(
                NotificationChannel(name=name, events=events, minimum_severity="warning", **shared),
            )
    fine = at_service("check", "keybias", "--backend", "fp32", "--tell", "o/r")
    assert (fine.exit_code, "told" in fine.output) == (0, False)
    assert at_service("check", "keybias").exit_code == 1  # told nobody, unasked
    wrong = at_service("check", "keybias", "--tell", "o/r")
    assert (wrong.exit_code, wrong.output.splitlines()[-2]) == (1, "told: night")
    with service.context.database.session(writes=False) as session:
        (row,) = session.scalars(select(Notification))
    assert (row.event, row.body["data"]) == (
        "training.wrong",
        {
            "project": "o/r",
            "severity": "warning",
            "title": "training keybias: emulated-fa3: dQ error in the end 102%, limit 1% (also wrong: half)",
            "url": "/training/keybias",
            "training": "keybias",
            "wrong": {"emulated-fa3": ["dQ error in the end 102%, limit 1%"], "half": ["1 failed"]},
        },
    )


@pytest.mark.parametrize("limit", [{"loss": "nan"}, {"dq_error": "inf"}, {"loss": "much"}])
def test_a_limit_of_a_check_is_a_number(service, limit):
    assert put(service, example.report()).status_code == 201
    path = "/api/v1/training/keybias/check"
    assert service.client.get(path, params=limit).status_code == 422
    told = service.client.post(path, json={"project": "o/r", **limit}, headers=service.write_headers)
    assert told.status_code == 422


def test_the_command_says_which_file_is_wrong(at_service, tmp_path):
    (tmp_path / "bench.json").write_text('{"schema_version": 1}')
    assert "no training report" in at_service("send", str(tmp_path)).output
    assert "`gprojci report import`" in at_service("send", str(tmp_path / "bench.json")).output
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"{}")[:-4])
    assert "cut.json.gz: not JSON, nor JSON packed with gzip" in at_service("send", str(tmp_path)).output
    report = CliRunner().invoke(cli, ["report", "import", _written(tmp_path / "t.json", example.report().dumps())])
    assert "`gprojci training send FILE`" in report.output


def _written(path, text):
    path.write_text(text)
    return str(path)
