"""From a report to the stored verdict, its samples, its regression and what GitHub is told."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from gprojci_service.gate.tasks import decide
from gprojci_service.models import (
    GithubReport,
    InputSet,
    Notification,
    NotificationChannel,
    Project,
    Regression,
    RegressionSeries,
    Sample,
    Series,
    Verdict,
)
from gprojci_service.notifications.signing import new_secret

MANIFEST = """
[backends.gproj]
entry = "gproj:attention"
[gate]
dq_error_ceiling = {ceiling}
"""
LOOSE, STRICT = MANIFEST.format(ceiling=100), MANIFEST.format(ceiling=0.0035)


@pytest.fixture
def measured(service, push_payload, make_report):
    """Takes a push through to its verdict."""

    def run(sha="a" * 40, manifests=None, **report):
        service.deliver("push", push_payload(sha))
        service.work_off()
        service.hello()
        claimed = service.claim().json()
        attempt = claimed["attempt"]
        resolved = {"head": commit(sha), "base": commit("b" * 40)}
        service.worker(f"/attempts/{attempt['id']}/heartbeat", {"fencing_token": 1, "resolved": resolved})
        body = {
            "fencing_token": 1,
            "status": "measured",
            "report": make_report(**report),
            "manifests": manifests or {"head": STRICT, "base": STRICT},
        }
        assert service.worker(f"/attempts/{attempt['id']}/report", body).json()["accepted"]
        service.work_off()
        return service.job(claimed["job"]["id"])

    return run


def commit(sha):
    return {
        "sha": sha,
        "message": f"commit {sha[:4]}",
        "author_name": "Ada",
        "author_email": "a@example.com",
        "authored_at": "2026-01-02T03:04:05Z",
        "parents": [],
    }


def rows(service, query):
    with service.context.database.session(writes=False) as session:
        return session.execute(query).all()


def test_the_policy_is_the_base_commits(service, measured):
    job = measured(dq=43.9, manifests={"head": LOOSE, "base": STRICT})
    assert job["verdict"]["verdict"] == "fail"
    assert job["verdict"]["policy"]["read_from"] == "base"


def test_a_finding_names_the_line_that_sets_its_limit_on_the_jobs_page_too(service, measured):
    rule = "[[gate.rules]]\nhardware = ['cpu']\ndq_error_ceiling = 0.001\n"
    job = measured(manifests={"head": LOOSE, "base": STRICT + rule})
    (finding,) = (each for each in job["verdict"]["evidence"] if each["limit_key"] == "dq_error_ceiling")
    assert (job["verdict"]["verdict"], finding["limit"], finding["line"]) == ("fail", 0.001, 6)
    assert '<span class="sub">line 6</span>' in service.client.get(f"/jobs/{job['id']}").text


def test_a_base_without_manifest_leaves_the_heads_policy(service, measured):
    job = measured(manifests={"head": STRICT, "base": None})
    assert (job["verdict"]["verdict"], job["verdict"]["policy"]["read_from"]) == ("pass", "head")


def test_a_base_with_a_broken_manifest_says_so(service, measured):
    job = measured(manifests={"head": STRICT, "base": "[gate]\nnonsense = 1\n"})
    assert job["verdict"]["verdict"] == "fail"
    assert "line 2" in job["verdict"]["summary"]


def test_samples_belong_to_their_commits(service, measured):
    measured(dq=0.002, base_dq=0.003)
    found = rows(
        service,
        select(Series.metric, Series.case, Sample.revision, Sample.value)
        .join(Sample, Sample.series_id == Series.id)
        .where(Series.metric == "dq_error")
        .order_by(Sample.revision),
    )
    assert found == [("dq_error", "late-keybias", "base", 0.003), ("dq_error", "late-keybias", "head", 0.002)]


def test_the_input_set_is_kept(service, measured):
    measured()
    assert rows(service, select(InputSet.name)) == [("late-keybias",)]


def test_a_decision_is_made_once(service, measured):
    job = measured()
    decide(service.context, job["id"])
    assert len(rows(service, select(Verdict.id))) == 1
    assert len(rows(service, select(Sample.id).join(Series).where(Series.metric == "dq_error"))) == 2


def test_a_limit_broken_on_the_default_branch_is_one_regression_and_channels_are_told(service, measured):
    measured("0" * 40)
    with service.context.database.session(writes=True) as session:
        project = session.scalars(select(Project)).one()
        channel = {"kind": "webhook", "url": "https://127.0.0.1", "secret": new_secret(), "minimum_severity": "warning"}
        session.add(NotificationChannel(project_id=project.id, name="ops", **channel))
    measured("1" * 40, dq=43.9)
    measured("2" * 40, dq=43.8)
    (found,) = rows(
        service, select(Regression.state, RegressionSeries.after, RegressionSeries.limit).join(RegressionSeries)
    )
    assert found == ("new", 43.9, 0.0035)
    told = rows(service, select(Notification.event, Notification.state, Notification.detail).order_by(Notification.id))
    assert [event for event, *_ in told] == ["regression.opened", "gate.failed", "gate.failed"]
    assert told[0][1] == "pending"
    assert "is an address of a private network" in told[0][2]


def test_github_is_told_and_without_credentials_it_is_recorded(service, measured):
    job = measured(dq=43.9)
    told = rows(
        service,
        select(GithubReport.kind, GithubReport.phase, GithubReport.state, GithubReport.payload).order_by(
            GithubReport.id
        ),
    )
    assert [(kind, phase, state) for kind, phase, state, _ in told] == [
        ("commit_status", "created", "recorded"),
        ("check_run", "created", "recorded"),
        ("check_run", "started", "recorded"),
        ("commit_status", "decided", "recorded"),
        ("check_run", "decided", "recorded"),
    ]
    pending, _, _, status, check = (payload for *_, payload in told)
    assert (pending["state"], status["state"], check["conclusion"]) == ("pending", "failure", "failure")
    assert status["description"] == job["verdict"]["summary"]
    assert len(status["description"]) <= 140
    assert check["head_sha"] == job["head_sha"]
    assert check["output"]["title"] == f"Fails: {job['verdict']['summary']}"
    assert "| ❌ fail | dQ error, median |" in check["output"]["summary"]


@pytest.mark.parametrize(
    ("manifest", "detail", "places"),
    [
        ("[gate]\nnonsense = 1\n[buidl]\n", "line 2", [(None, None), (2, 1), (3, 1)]),
        (STRICT + "[accuracy]\ninputs = [\n  'lat-keybias']", "names the input set lat-keybias, which", [(8, 3)]),
        (STRICT, "pip said no", None),
        (None, "has no gprojci.toml", None),
    ],
)
def test_a_manifest_at_fault_is_annotated(service, push_payload, manifest, detail, places):
    service.deliver("push", push_payload())
    service.work_off()
    service.hello()
    attempt = service.claim().json()["attempt"]
    body = {"fencing_token": 1, "status": "build_error", "detail": detail, "manifests": {"head": manifest}}
    assert service.worker(f"/attempts/{attempt['id']}/report", body).json()["accepted"]
    service.work_off()
    decided = select(GithubReport.payload).where(GithubReport.kind == "check_run", GithubReport.phase == "decided")
    ((payload,),) = rows(service, decided)
    assert payload["conclusion"] == "failure"
    annotations = payload["output"].get("annotations")
    found = annotations and [(each["start_line"], each.get("start_column")) for each in annotations]
    assert found == (places and [(line or 1, column) for line, column in places])
    if detail.startswith("names"):
        assert annotations[0]["message"] == "unknown input set 'lat-keybias'; did you mean 'late-keybias'?"


def test_reports_are_given_as_json_and_csv(service, measured, make_report):
    job = measured()
    assert service.client.get(f"/api/v1/jobs/{job['id']}/report").json() == make_report()
    table = service.client.get(f"/api/v1/jobs/{job['id']}/slices.csv").text.splitlines()
    assert table[0].startswith("backend,revision,input,slice")
    assert len(table) == 3
