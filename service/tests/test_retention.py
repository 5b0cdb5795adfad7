"""Old reports keep their medians, and their pages say so."""

from __future__ import annotations

import copy
import dataclasses
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from gprojci_service.models import Report, Sample, now
from gprojci_service.results.retention import thinned
from gprojci_service.results.tasks import thin_reports
from gprojci_suite.contract.report import Report as SuiteReport


@pytest.fixture
def reports(service, push_payload, make_report):
    """A report of 40 days and one of today."""
    shas = ("11" * 20, "22" * 20)
    for sha in shas:
        service.deliver("push", push_payload(after=sha))
    service.work_off()
    service.hello()
    service.measure(lambda *_: with_two_slices(make_report()))
    with service.context.database.session(writes=True) as session:
        session.execute(update(Report).where(Report.id == 1).values(received_at=now() - timedelta(days=40)))
    return service


def with_two_slices(report):
    """The report with a better slice beside each, which no summary names."""
    better = [{**one, "slice": "L1.b0.h1", "head": 1, "rel_err": 0.0} for one in report["accuracy"]["slices"]]
    report = copy.deepcopy(report)
    report["accuracy"]["slices"] += better
    return report


def rows(service, table):
    with service.context.database.session(writes=False) as session:
        return session.scalars(select(table).order_by(table.id)).all()


def values(service):
    return [(one.series_id, one.revision, one.value, one.count) for one in rows(service, Sample)]


def thin(service, days):
    settings = service.context.settings.model_copy(update={"raw_values_days": days})
    thin_reports(dataclasses.replace(service.context, settings=settings))


def test_an_old_report_is_thinned_once_and_says_so(reports):
    before, samples = [row.body for row in rows(reports, Report)], values(reports)
    thin(reports, None)
    assert [row.thinned_at for row in rows(reports, Report)] == [None, None], "without the setting they stay whole"
    thin(reports, 30)
    old, young = rows(reports, Report)
    assert (old.body, young.body, young.thinned_at) == (thinned(before[0]), before[1], None)
    assert values(reports) == samples
    page = reports.client.get(f"/jobs/{old.job_id}").text
    assert "This report was thinned" in page
    assert ("median; the calls are not kept one by one" in page, "median of 1" in page) == (True, False)
    assert "This report was thinned" not in reports.client.get(f"/jobs/{young.job_id}").text
    thin(reports, 30)
    assert rows(reports, Report)[0].thinned_at == old.thinned_at


def test_medians_intervals_and_the_worst_slices_stay(make_report):
    whole = with_two_slices(make_report())
    slim = thinned(whole)
    SuiteReport.from_json(slim)
    assert {one["slice"] for one in slim["accuracy"]["slices"]} == {"L1.b0.h0"}
    assert slim["accuracy"]["summary"] == whole["accuracy"]["summary"]
    assert [one["seconds"] for one in slim["throughput"]["measurements"]] == [[0.1], [0.1]]
    assert slim["throughput"]["comparisons"] == whole["throughput"]["comparisons"]
    assert thinned(slim) == slim


def test_the_timetable_has_it_only_with_its_setting(monkeypatch, settings):
    for name in ("database_url", "broker_url"):
        monkeypatch.setenv(f"GPROJCI_{name.upper()}", getattr(settings, name))
    monkeypatch.setenv("GPROJCI_WEBHOOK_SECRET", settings.webhook_secret.get_secret_value())
    from gprojci_service import task_worker

    assert "retention" not in task_worker.timetable(settings)
    settings.raw_values_days = 30
    assert task_worker.timetable(settings)["retention"]["task"] in task_worker.app.tasks
