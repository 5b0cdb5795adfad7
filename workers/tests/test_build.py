"""Building: an environment per key, kept; the subject's own code in it; failures with their log."""

from __future__ import annotations

import os
import subprocess

import pytest

from gprojci_suite.contract.manifest import Build
from gprojci_workers import build
from gprojci_workers.build import BuildFailed
from gprojci_workers.checkout import Repository
from gprojci_workers.failure import AttemptFailed


@pytest.fixture
def build_commit(origin, worker_settings, tmp_path):
    """Builds a commit of `origin` and returns what came of it, with the log."""
    repository = Repository(worker_settings.cache_dir, origin.url, None, private_network=True)

    def run(sha, recipe=None):
        repository.fetch(sha, None, None)
        log: list[str] = []
        built = build.build(
            worker_settings,
            repository,
            revision="head",
            sha=sha,
            recipe=recipe or Build(),
            scratch=tmp_path / "scratch",
            on_output=log.append,
            should_stop=lambda: False,
        )
        return built, "".join(log)

    return run


def python(built, code):
    done = subprocess.run([built.python, "-P", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr


def test_a_commit_gets_an_environment_of_its_own_that_sees_the_ruler(origin, kernel, build_commit):
    built, _ = build_commit(origin.commit(kernel("VALUE = 41\n")))
    assert not built.reused
    assert python(built, "import kernel_under_test as k; print(k.VALUE)") == "41"
    place = python(built, "import kernel_under_test as k; print(k.__file__)")
    assert place.startswith(str(built.site))
    assert "site-packages" in python(built, "import torch; print(torch.__file__)")
    assert python(built, "import gprojci_suite; print('seen')") == "seen"


def test_the_workspace_of_the_ruler_is_not_seen(origin, kernel, build_commit):
    """Another checkout's editable packages must not stand in for the commit's own."""
    built, _ = build_commit(origin.commit(kernel()))
    assert "No module named 'gproj'" in python(built, "import gproj")


def test_equal_code_is_built_once(origin, kernel, build_commit):
    first, _ = build_commit(origin.commit(kernel()))
    second, log = build_commit(origin.commit({}, "only a message"))
    assert (second.key, second.reused) == (first.key, True)
    assert "kept environment" in log
    third, _ = build_commit(origin.commit(kernel("VALUE = 2\n")))
    assert (third.key == first.key, third.reused) == (False, False)
    assert python(first, "import kernel_under_test as k; print(k.VALUE)") == "1"


def test_an_environment_that_was_killed_half_way_is_built_anew(origin, kernel, build_commit):
    sha = origin.commit(kernel())
    first, _ = build_commit(sha)
    (first.site.parent / "finished").unlink()
    again, _ = build_commit(sha)
    assert not again.reused
    assert python(again, "import kernel_under_test as k; print(k.VALUE)") == "1"


def test_builds_that_nobody_uses_are_removed(origin, kernel, build_commit, worker_settings):
    worker_settings.kept_builds = 2
    built = [build_commit(origin.commit(kernel(f"VALUE = {number}\n")))[0] for number in range(3)]
    assert all(one.python.exists() for one in built), "all were used just now"
    for one in built:
        os.utime(one.site.parent / "finished", (0, 0))
    build_commit(origin.commit(kernel("VALUE = 3\n")))
    assert [one.python.exists() for one in built].count(True) == 1


def test_a_build_that_fails_says_why_and_is_not_kept(origin, kernel, build_commit, worker_settings):
    broken = kernel(
        pyproject="[build-system]\nrequires = []\nbuild-backend = 'no_such_backend'\n[project]\nname='x'\nversion='1'\n"
    )
    sha = origin.commit(broken)
    for _ in range(2):
        with pytest.raises(BuildFailed) as failure:
            build_commit(sha)
        assert failure.value.kind == "build_error"
        assert "no_such_backend" in failure.value.build["log_tail"]
    assert not list(worker_settings.cache_dir.glob("builds/*/finished"))


def test_a_path_may_not_leave_the_repository(origin, kernel, build_commit, tmp_path):
    (tmp_path / "outside").mkdir()
    sha = origin.commit(kernel())
    (origin.directory / "link").symlink_to(tmp_path / "outside")
    sha = origin.commit({}, "a link")
    with pytest.raises(AttemptFailed, match="not a directory"):
        build_commit(sha, Build(path="link"))


def test_the_build_sees_no_secret(origin, kernel, build_commit, monkeypatch):
    monkeypatch.setenv("GPROJCI_WORKER_TOKEN", "a-secret-of-the-worker")
    hook = """
[tool.hatch.build.hooks.custom]
path = "hook.py"
"""
    files = kernel()
    files["pyproject.toml"] += hook
    files["hook.py"] = (
        "import os\nfrom hatchling.builders.hooks.plugin.interface import BuildHookInterface\n"
        "class Hook(BuildHookInterface):\n    def initialize(self, version, data):\n"
        "        open('kernel_under_test/seen.py', 'w').write(f'SEEN = {dict(os.environ)!r}')\n"
    )
    built, _ = build_commit(origin.commit(files))
    seen = python(built, "from kernel_under_test.seen import SEEN; print(SEEN)")
    assert "PATH" in seen
    assert "a-secret-of-the-worker" not in seen
