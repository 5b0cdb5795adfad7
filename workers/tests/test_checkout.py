"""Fetching: the right commits, their merge base, their manifest; clear failures."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from gprojci_workers.checkout import Repository
from gprojci_workers.failure import AttemptFailed


@pytest.fixture
def repository(origin, tmp_path):
    return Repository(tmp_path / "cache", origin.url, None, private_network=True)


def test_a_push_is_measured_against_its_first_parent(origin, repository):
    first = origin.commit({"a": "1"}, "first")
    second = origin.commit({"a": "2"}, "second\n\nwith a body")
    repository.fetch(second, None, None)
    head, base = repository.resolve(second, None)
    assert (head.sha, head.message, head.author_name, head.parents) == (
        second,
        "second\n\nwith a body",
        "Ada",
        (first,),
    )
    assert base is not None
    assert base.sha == first


def test_a_pull_request_is_measured_against_its_merge_base(origin, repository):
    common = origin.commit({"a": "1"})
    origin.git("switch", "--quiet", "--create", "topic")
    head = origin.commit({"a": "2"})
    origin.git("switch", "--quiet", "main")
    moved_on = origin.commit({"b": "1"})
    repository.fetch(head, moved_on, 7)
    assert repository.resolve(head, moved_on)[1].sha == common


def test_a_first_commit_has_no_base(origin, repository):
    only = origin.commit({"a": "1"})
    repository.fetch(only, None, None)
    assert repository.resolve(only, None)[1] is None


def test_the_head_of_a_pull_request_is_found_under_its_reference(origin, repository):
    base = origin.commit({"a": "1"})
    head = origin.commit({"a": "2"})
    origin.git("update-ref", "refs/pull/7/head", head)
    origin.git("reset", "--quiet", "--hard", base)
    repository.fetch(head, base, 7)
    assert repository.resolve(head, base)[0].sha == head


def test_a_commit_that_is_gone_is_a_checkout_error(origin, repository):
    origin.commit({"a": "1"})
    with pytest.raises(AttemptFailed, match="force-pushed away") as failure:
        repository.fetch("d" * 40, None, None)
    assert failure.value.kind == "checkout_error"


@pytest.mark.parametrize("url", ["file:///nonexistent/repository", "ext::sh -c 'touch /tmp/owned'"])
def test_a_remote_that_cannot_be_read_is_a_checkout_error(tmp_path, url):
    with pytest.raises(AttemptFailed) as failure:
        Repository(tmp_path, url, None, private_network=True).fetch("d" * 40, None, None)
    assert failure.value.kind == "checkout_error"


def test_git_itself_speaks_the_named_protocols_alone(origin, tmp_path):
    """Wherever it may be led to after the address was checked."""
    done = Repository(tmp_path, "https://ci.example/o/r.git", None)._run("ls-remote", origin.url, cwd=tmp_path)
    assert "transport 'file' not allowed" in done.stderr


def test_manifest_and_trees(origin, repository):
    first = origin.commit({"kernel/a": "1"})
    second = origin.commit({"gprojci.toml": "[backends]\n"})
    third = origin.commit({"kernel/a": "2"})
    repository.fetch(third, None, None)
    assert [repository.manifest(sha) for sha in (first, second)] == [None, "[backends]\n"]
    trees = [repository.tree(sha, "kernel") for sha in (first, second, third)]
    assert trees[0] == trees[1] != trees[2]
    with pytest.raises(AttemptFailed, match="not a directory"):
        repository.tree(third, "elsewhere")
    with pytest.raises(AttemptFailed, match="not a directory"):
        repository.tree(third, "kernel/a")


def test_a_worktree_is_removed_again(origin, repository, tmp_path):
    sha = origin.commit({"a": "1"})
    repository.fetch(sha, None, None)
    hook = repository.directory / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    with repository.worktree(sha, tmp_path / "tree") as tree:
        assert (tree / "a").read_text() == "1"
    assert not (tmp_path / "tree").exists()
    assert not (tmp_path / "ran").exists(), "no hook runs"


def test_a_clone_that_was_killed_half_way_is_made_anew(origin, repository):
    sha = origin.commit({"a": "1"})
    repository.directory.mkdir(parents=True)
    (repository.directory / "objects").mkdir()
    repository.fetch(sha, None, None)
    assert repository.resolve(sha, None)[0].sha == sha


def test_git_dies_with_its_worker(origin, tmp_path):
    """Else it would write into a clone whose lock has gone to the next worker."""
    running = tmp_path / "pid"
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f'#!/bin/sh\necho $$ > "{running}.new"; mv "{running}.new" "{running}"; exec sleep 300\n')
    git.chmod(0o755)
    fetch = (
        "from pathlib import Path; from gprojci_workers.checkout import Repository\n"
        f"Repository(Path({str(tmp_path / 'cache')!r}), {origin.url!r}, None, private_network=True)"
        f".fetch({'a' * 40!r}, None, None)"
    )
    environment = {**os.environ, "PATH": f"{git.parent}:{os.environ['PATH']}"}
    worker = subprocess.Popen([sys.executable, "-c", fetch], env=environment)
    while not running.exists():
        time.sleep(0.02)
        assert worker.poll() is None
    process = psutil.Process(int(running.read_text()))
    worker.kill()
    worker.wait()
    process.wait(timeout=10)


def test_the_token_is_never_an_argument(origin, tmp_path):
    repository = Repository(tmp_path, origin.url, "secret-token", private_network=True)
    environment = repository._environment()
    assert "secret-token" not in str(environment)
    assert "Authorization: Basic" in environment["GIT_CONFIG_VALUE_3"]


@pytest.mark.parametrize(
    ("url", "addresses", "says"),
    [
        ("https://ci.example/o/r.git", ["10.0.0.7"], "private network"),
        ("https://ci.example/o/r.git", ["140.82.121.4", "127.0.0.1"], "private network"),
        ("https://ci.example/o/r.git", ["fe80::1%eth0"], "private network"),
        ("https://ci.example/o/r.git", ["::ffff:169.254.169.254"], "private network"),
        ("https://ci.example/o/r.git", ["64:ff9b::a00:1"], "private network"),
        ("ssh://git@ci.example/o/r.git", ["192.168.1.1"], "private network"),
        ("http://ci.example/o/r.git", ["140.82.121.4"], "must begin with https:// or ssh://"),
        ("file:///etc", [], "must begin with"),
        ("https:///o/r.git", [], "must begin with"),
        ("ssh://-oProxyCommand=id/o/r", [], "must begin with"),
        ("https://ci.example:port/o/r.git", [], "is not an address"),
    ],
)
def test_nothing_is_fetched_from_a_private_network(tmp_path, monkeypatch, url, addresses, says):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (address, 0)) for address in addresses])
    with pytest.raises(AttemptFailed, match=says) as failure:
        Repository(tmp_path, url, None).fetch("d" * 40, None, None)
    assert failure.value.kind == "checkout_error"
    assert not list(tmp_path.iterdir())


@pytest.fixture
def web():
    """An HTTP server that notes what it is asked and sends everybody elsewhere."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.headers["Host"], self.headers.get("Authorization")))
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{server.server_port}/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, asked
    server.shutdown()
    server.server_close()


def test_git_goes_to_the_address_that_was_checked_and_follows_no_redirect(tmp_path, monkeypatch, web):
    """The name leads nowhere by itself: that git arrives shows that it asked nobody again (DNS rebinding)."""
    port, asked = web
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("127.0.0.1", 0))])
    repository = Repository(tmp_path, f"http://rebound.invalid:{port}/o/r.git", "t", private_network=True)
    with pytest.raises(AttemptFailed, match=r"redirect|302"):
        repository.fetch("d" * 40, None, None)
    assert [host for host, _ in asked] == [f"rebound.invalid:{port}"]
