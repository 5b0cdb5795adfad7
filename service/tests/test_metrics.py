"""Health, readiness and metrics; the dashboard and the alerts ask for metrics and labels that exist."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from gprojci_service.models import GithubReport, Job, now

DOCKER = Path(__file__).parents[2] / "docker"
DASHBOARD = json.loads((DOCKER / "grafana-dashboard.json").read_text())
ALERTS = yaml.safe_load((DOCKER / "prometheus-alerts.yml").read_text())
OPERATING = (Path(__file__).parents[1] / "OPERATING.md").read_text()


@pytest.fixture
def lived_in(service, push_payload, make_report):
    """A measured job, one that waits, a worker, something in each outbox; an hour has a price."""
    service.app.state.context = service.context = service.context.__class__(
        **{
            **vars(service.context),
            "settings": service.settings.model_copy(update={"hour_prices": {"cpu": 2.0}}),
        }
    )
    for number in (1, 2):
        service.deliver("push", push_payload(f"{number}" * 40))
    service.work_off()
    service.hello()
    attempt = service.claim().json()["attempt"]
    step = {"name": "run", "started_at": "2026-01-02T03:04:05Z", "seconds": 40.0, "status": "ok"}
    body = {"fencing_token": 1, "status": "measured", "report": make_report(), "steps": [step]}
    assert service.worker(f"/attempts/{attempt['id']}/report", body).json()["accepted"]
    service.work_off()
    with service.context.database.session(writes=True) as session:
        told = {"kind": "check_run", "phase": "ready", "method": "POST", "path": "/x", "payload": {}}
        session.add(GithubReport(job_id=1, created_at=now() - timedelta(minutes=3), **told))
        session.get_one(Job, 2).created_at = now() - timedelta(minutes=5)
    return service


def scrape(service) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = service.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def value(found, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_metrics_say_what_the_database_knows(lived_in):
    found = scrape(lived_in)
    assert value(found, "gprojci_jobs", hardware="cpu", state="queued") == 1
    assert 300 <= value(found, "gprojci_queue_age_seconds", hardware="cpu") < 400
    assert [found[key] for key in found if key[0] == "gprojci_verdicts_total"] == [1]
    assert value(found, "gprojci_attempts_total", state="reported") == 1
    assert value(found, "gprojci_workers", hardware="cpu", state="idle") == 1
    assert value(found, "gprojci_step_seconds", step="run", quantile="0.95") == 40
    assert value(found, "gprojci_measuring_share", hardware="cpu") == 1
    assert value(found, "gprojci_webhooks_waiting") == 0
    assert value(found, "gprojci_outbox_waiting", outbox="github") == 1
    assert 180 <= value(found, "gprojci_outbox_lag_seconds", outbox="github") < 280
    assert value(found, "gprojci_broker_up") == 1
    assert value(found, "gprojci_broker_messages", queue="measure.cpu") == 2


def test_dashboard_and_alerts_ask_for_what_is_there(lived_in):
    found = scrape(lived_in)
    labels: dict[str, set[str]] = {}
    for name, given in found:
        labels.setdefault(name, set()).update(label for label, _ in given)
    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    asked += [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]
    legends = " ".join(target["legendFormat"] for panel in DASHBOARD["panels"] for target in panel["targets"])
    every = set().union(*labels.values())
    assert set(re.findall(r"{{(\w+)}}", legends)) <= every
    for expression in asked:
        names = re.findall(r"gprojci_\w+", expression)
        assert names, expression
        for name in names:
            assert name in labels, expression
            used = set(re.findall(r"(\w+)=~?\"", expression))
            used |= {word.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for word in group.split(",")}
            assert used <= labels[name], expression
    mentioned = set(re.findall(r"gprojci_\w+", " ".join(asked)))
    assert mentioned >= labels.keys() - {"gprojci_build_info", "gprojci_outbox_waiting", "gprojci_worker_seconds"}
    assert [name for name in labels if f"`{name}" not in OPERATING] == [], "each has its row in OPERATING.md"


def test_metrics_need_a_token_where_reading_does(service):
    service.app.state.settings = service.settings.model_copy(update={"public_read": False})
    assert service.client.get("/metrics").status_code == 401
    assert service.client.get("/metrics", headers=service.write_headers).status_code == 200


def test_ready_is_with_the_schema_and_alive_without_anything(service):
    assert service.client.get("/readyz").json() == {"ready": True, "database": "ok", "schema": "ok", "broker": "ok"}
    with service.context.database.session(writes=True) as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    answer = service.client.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert "run `gprojci migrate`" in answer.json()["schema"]
    with service.context.database.session(writes=True) as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert service.client.get("/readyz").status_code == 200, "migrated first, this version after it"
    service.context.database.engine.dispose()
    assert service.client.get("/healthz").json()["status"] == "ok"
