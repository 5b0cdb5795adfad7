"""What users can set, call or be told stands in the documents, and the documents say nothing that is not there."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic_settings import BaseSettings

import gprojci_service.cli
import gprojci_service.settings
import gprojci_suite.cli
import gprojci_workers.cli
import gprojci_workers.settings
from gprojci_service.app import create_app
from gprojci_service.client import ServiceCommand
from gprojci_service.jobs.service import TRANSIENT
from gprojci_service.models.attempt import ATTEMPT_STATES
from gprojci_service.models.job import JOB_STATES
from gprojci_service.models.regression import REGRESSION_STATES
from gprojci_service.models.verdict import VERDICTS
from gprojci_service.notifications.events import EVENTS
from gprojci_service.regressions.service import TRANSITIONS
from gprojci_service.results.schemas import FAILURE_KINDS
from gprojci_service.webhooks.events import HANDLERS
from gprojci_suite import metrics, peers
from gprojci_suite.contract import manifest
from gprojci_suite.contract.vocabulary import DEVICES

ROOT = Path(__file__).parents[1]
NOT_OURS = ("gprojci-data", "build", "dist", "node_modules")
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in sorted(ROOT.rglob("*.md"))
    if not any(part.startswith(".") or part in NOT_OURS for part in path.relative_to(ROOT).parts)
}
SHARED = ("--url", "--token", "--json")
SERVICE, WORKERS, SUITE = "service/README.md", "workers/README.md", "kernels/suite/README.md"


def rows(document: str, first: str) -> list[str]:
    """Table rows of a document whose first cell names this, in backticks."""
    lines = DOCUMENTS[document].splitlines()
    return [line for line in lines if line.startswith("|") and f"`{first}`" in line.split("|")[1]]


def missing(document: str, names: Iterator[str] | list[str]) -> list[str]:
    """Those of the names that stand nowhere in the document in backticks, alone or followed by their arguments."""
    text = DOCUMENTS[document]
    return [name for name in names if not re.search(rf"`{re.escape(name)}(?=[`\s/=])|/{re.escape(name)}`", text)]


@pytest.mark.parametrize(
    ("document", "settings"),
    [(SERVICE, gprojci_service.settings.Settings), (WORKERS, gprojci_workers.settings.Settings)],
)
def test_every_setting_has_its_row_with_its_default(document: str, settings: type[BaseSettings]) -> None:
    for name, field in settings.model_fields.items():
        variable = f"GPROJCI_{name.upper()}"
        found = rows(document, variable)
        assert len(found) == 1, f"{document}: {variable} needs one row, has {len(found)}"
        default = found[0].split("|")[2].strip()
        if field.is_required():
            assert default == "needed", f"{document}: {variable} has no default"
        elif field.default is None:
            assert default == "none", f"{document}: default of {variable}"
        elif isinstance(field.default, (bool, int, float, list, dict)):
            written = json.dumps(int(field.default) if isinstance(field.default, float) else field.default)
            assert default == f"`{written}`", f"{document}: default of {variable}"


def test_the_documents_name_no_setting_that_does_not_exist() -> None:
    models = (gprojci_service.settings.Settings, gprojci_workers.settings.Settings)
    known = {f"GPROJCI_{name.upper()}" for model in models for name in model.model_fields}
    known |= {"GPROJCI_URL", "GPROJCI_TOKEN"}  # of the commands
    known |= {"GPROJCI_NETWORK", "GPROJCI_FA3_LIBRARY", "GPROJCI_FA3_CUDART"}  # of the suite
    known |= {"GPROJCI_LISTEN", "GPROJCI_SECRETS"}  # of docker-compose.yml
    known |= {"GPROJCI_CHROMIUM"}  # of tests/browser
    for name, text in DOCUMENTS.items():
        assert set(re.findall(r"GPROJCI_[A-Z0-9_]*[A-Z0-9]", text)) <= known, name


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with the words that call it."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")
    else:
        yield path, command


def options(command: click.Command) -> list[str]:
    """The long options of a command."""
    found = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    names = [name for option in found for name in (*option.opts, *option.secondary_opts) if name.startswith("--")]
    return [name for name in names if not isinstance(command, ServiceCommand) or name not in SHARED]


def test_every_command_of_the_service_has_its_row_with_its_options() -> None:
    for path, command in commands(gprojci_service.cli.cli, "gprojci"):
        arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
        call = " ".join([path, *(argument.human_readable_name.upper() for argument in arguments)])
        found = rows(SERVICE, call)
        assert len(found) == 1, f"{SERVICE}: `{call}` needs one row"
        assert [name for name in options(command) if name not in found[0]] == [], call


def test_the_options_of_all_commands_about_a_service_are_documented() -> None:
    assert missing(SERVICE, list(SHARED)) == []


def test_every_option_of_a_group_is_documented() -> None:
    for group in gprojci_service.cli.cli.commands.values():
        assert missing(SERVICE, options(group)) == []


def test_every_option_of_the_worker_has_its_row() -> None:
    assert [name for name in options(gprojci_workers.cli.main) if not missing_row(name)] == []


def missing_row(option: str) -> bool:
    """Whether an option of the worker's command has a row, alone or with its argument."""
    cells = [line.split("|")[1] for line in DOCUMENTS[WORKERS].splitlines() if line.startswith("|")]
    return any(re.search(rf"`{option}[` ]", cell) for cell in cells)


def test_every_command_and_option_of_the_suite_is_documented() -> None:
    parser = gprojci_suite.cli._parser()
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    text = DOCUMENTS[SUITE]
    for name, inner in groups[0].choices.items():
        assert f"gprojci-suite {name}" in text
        for action in inner._actions:
            for option in action.option_strings:
                assert option in ("-h", "--help") or f"`{option}" in text, f"{SUITE}: {option} of {name}"


def endpoints() -> list[tuple[str, str]]:
    """Method and path of the whole REST API."""
    settings = gprojci_service.settings.load_settings(
        database_url="sqlite://", broker_url="redis://127.0.0.1:9/0", webhook_secret="x" * 16
    )
    described: dict[str, Any] = create_app(settings).openapi()
    return [(method.upper(), path) for path, methods in described["paths"].items() for method in methods]


def test_the_table_of_endpoints_is_the_api() -> None:
    table = re.findall(r"^\| (GET|POST|PUT|PATCH|DELETE) \| `([^`]+)` \|", DOCUMENTS[SERVICE], re.MULTILINE)
    assert sorted(table) == sorted(endpoints())


def test_every_handled_event_has_its_row() -> None:
    table = DOCUMENTS[SERVICE].split("\n## Events\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(HANDLERS)


def test_every_failure_kind_has_its_row_and_says_whether_it_is_tried_again() -> None:
    for kind in FAILURE_KINDS:
        found = [line for line in rows(SERVICE, kind) if line.count("|") == 5]
        assert len(found) == 1, f"{SERVICE}: {kind} needs one row"
        again = found[0].split("|")[3].strip()
        assert again.startswith("yes" if kind in TRANSIENT else "no"), kind


def test_every_state_and_verdict_is_documented() -> None:
    text = DOCUMENTS[SERVICE]
    diagram = text.split("```mermaid")[1].split("```")[0]
    assert [state for state in JOB_STATES if state not in diagram] == []
    assert missing(SERVICE, list(ATTEMPT_STATES)) == []
    assert [verdict for verdict in VERDICTS if len(rows(SERVICE, verdict)) != 1] == []


def test_every_state_of_a_regression_and_every_event_of_a_channel_is_documented() -> None:
    table = DOCUMENTS[SERVICE].split("\n## Regressions\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(REGRESSION_STATES)
    for state, ways in TRANSITIONS.items():
        (row,) = [line for line in table.splitlines() if line.startswith(f"| `{state}` |")]
        assert re.findall(r"`(\w+)`", row.split("|")[3]) == list(ways), state
    assert [event for event in EVENTS if len(rows(SERVICE, event)) != 1] == []


def test_every_metric_has_its_row() -> None:
    assert [name for name in metrics.names() if len(rows(SUITE, name)) != 1] == []


def test_every_gate_key_has_its_row() -> None:
    keys = [*manifest.GATE_LIMITS, "informative", "rules"]
    assert [key for key in keys if len(rows(SERVICE, key)) != 1] == []
    of_rules = DOCUMENTS[SERVICE].split("| key in `[[gate.rules]]` |")[1].split("\n\n")[0]
    assert [key for key in (*manifest.RULE_FILTERS, "required") if f"`{key}`" not in of_rules] == []
    (example,) = re.findall(r"```toml\n(\[\[gate\.rules.*?)```", DOCUMENTS[SERVICE], re.DOTALL)
    whole = (ROOT / "gprojci.toml").read_text().replace(
        'shapes = ["4x16x4096x128"', 'shapes = ["4x16x16384x128"'
    ) + example
    assert len(manifest.parse(whole, device="cuda").gate.rules) == 3


def test_every_peer_has_its_row() -> None:
    assert [name for name in peers.names() if len(rows("kernels/README.md", name)) != 1] == []


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_relative_link_leads_somewhere(name: str) -> None:
    text = re.sub(r"```.*?```", "", DOCUMENTS[name], flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), f"{name}: {link}"
        if anchor:
            assert anchor in anchors(target.read_text()), f"{name}: {link}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_target_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", DOCUMENTS[name], re.DOTALL))
    called = set(re.findall(r"(?:^|[`\s])make ([a-z-]+)\b", code))
    assert called <= targets, name


def test_the_manifest_of_the_readme_is_one() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", DOCUMENTS["README.md"], re.DOTALL)
    for device in DEVICES:
        assert manifest.parse(text, device=device).gate.limits


def test_the_python_of_the_readme_runs() -> None:
    (text,) = re.findall(r"```python\n(.*?)```", DOCUMENTS["README.md"], re.DOTALL)
    scope: dict[str, Any] = {}
    exec(compile(text, "README.md", "exec"), scope)
    assert scope["q"].grad.shape == scope["q"].shape


def test_the_quoted_decisions_are_listed() -> None:
    names = sorted(path.name for path in (ROOT / "service" / "decisions").iterdir())
    listed = re.findall(r"^\* \[\d{4} .*\]\(decisions/(.+)\)$", DOCUMENTS[SERVICE], re.MULTILINE)
    assert listed == names


def test_the_tests_that_the_security_checklist_names_exist() -> None:
    named = re.findall(r"`((?:[a-z]+/)*)(test_\w+\.py)::(test_\w+)`", DOCUMENTS["service/SECURITY.md"])
    assert len(named) > 60
    for folder, file, test in named:
        path = ROOT / (folder or "service/tests") / file
        assert f"def {test}(" in path.read_text(), f"service/SECURITY.md: {folder}{file}::{test}"
