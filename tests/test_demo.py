"""The demo: its repository is this project's kernel with four commits, and it ends as it says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from deployment import BIN, PASSED_ON, free_port

from gprojci_service.demo import EXAMPLES
from gprojci_service.demo_repository import PROJECTIONS, DemoRepository
from gprojci_service.errors import ConfigurationError
from gprojci_service.webhooks.schemas import PullRequestEvent, Push
from gprojci_suite import peers
from gprojci_suite.contract.manifest import parse

ROOT = Path(__file__).parents[1]


@pytest.fixture
def repository(tmp_path: Path) -> DemoRepository:
    """The demo's repository with its two commits on main."""
    made = DemoRepository(tmp_path / "repository", ROOT)
    made.create()
    return made


def test_the_payloads_are_githubs(repository):
    push = Push.model_validate(repository.push_payload())
    assert (push.after, push.before) == (repository.sha("main"), repository.sha("main^"))
    repository.skip_projection()
    event = PullRequestEvent.model_validate(repository.pull_request_payload("opened"))
    assert event.pull_request.head.sha == repository.sha("skip-projection")
    assert event.pull_request.base.sha == repository.sha("main")


def test_the_fix_is_the_good_code_again(repository):
    repository.skip_projection()
    wrong = repository.sha_of_tree("skip-projection")
    repository.restore_projection()
    assert repository.sha_of_tree("skip-projection") == repository.sha_of_tree("main") != wrong


@pytest.mark.parametrize(("path", "projected"), [edit[:2] for edit in PROJECTIONS])
def test_it_says_when_the_kernel_no_longer_has_the_place_it_edits(repository, path, projected):
    file = repository.directory / path
    file.write_text(file.read_text().replace(projected, ""))
    with pytest.raises(ConfigurationError, match="no longer has the one place"):
        repository.skip_projection()


def test_it_needs_a_checkout(tmp_path):
    with pytest.raises(ConfigurationError, match="not a checkout"):
        DemoRepository(tmp_path / "repository", tmp_path).create()


def test_its_peers_exist():
    for device in ("cpu", "cuda"):
        manifest = parse((ROOT / "gprojci.toml").read_text(), device=device)
        named = {manifest.throughput.anchor, *manifest.accuracy.peers, *manifest.throughput.peers}
        assert named <= set(peers.names())


@pytest.fixture
def without_peers(tmp_path: Path) -> Path:
    """This checkout as the demo reads it, but for the peers: a third of a job's time, and no verdict hangs on them."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "kernels").symlink_to(ROOT / "kernels")
    manifest, found = re.subn(
        r"^peers = \[.*\]$", "peers = []", (ROOT / "gprojci.toml").read_text(), flags=re.MULTILINE
    )
    assert found == 4
    (source / "gprojci.toml").write_text(manifest)
    return source


@pytest.mark.timeout(900)
def test_pass_fail_pass(tmp_path, without_peers):
    """The whole demo, as `DEMO_ONCE=1 make demo` runs it."""
    environment = PASSED_ON | {"HOME": str(tmp_path), "DEMO_ONCE": "1", "GPROJCI_DEVICE": "cpu"}
    command = [str(BIN / "gprojci"), "demo", "--data-dir", str(tmp_path / "demo"), "--port", str(free_port())]
    command += ["--source", str(without_peers)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "As it should be." in done.stdout
    examples = [file.name.removesuffix(".json.gz") for file in sorted((ROOT / EXAMPLES).glob("*.json.gz"))]
    shown = [line.split()[1].rstrip(":") for line in done.stdout.splitlines() if line.startswith("example ")]
    assert shown == examples != []
    verdicts = [line.split()[1] for line in done.stdout.splitlines() if "/jobs/" in line]
    assert verdicts == ["pass", "fail", "pass"]
    assert "dQ error on late-keybias is 4,3" in done.stdout
    assert "worst head L1.b0.h0" in done.stdout
