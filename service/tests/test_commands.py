"""The commands as a user types them: in a git checkout, against a served application, with their exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from click.testing import CliRunner, Result

import gprojci_service.cli
from gprojci_service.results import export

MANIFEST = """
[backends.gproj]
entry = "gproj:attention"
[gate]
dq_error_ceiling = 0.0035
"""


class Terminal:
    """A user in a checkout, with the service's address and token in the environment."""

    def __init__(self, service, checkout: Path, url: str) -> None:
        self.service, self.checkout, self.url = service, checkout, url
        self.environment = {
            "GPROJCI_URL": url,
            "GPROJCI_TOKEN": service.write_headers["Authorization"].removeprefix("Bearer "),
        }

    def type(self, *words: str, code: int = 0, **environment: str | None) -> Result:
        """Runs a command in the checkout and checks its exit code."""
        before = Path.cwd()
        os.chdir(self.checkout)
        try:
            runner = CliRunner(env={**self.environment, **environment})
            result = runner.invoke(gprojci_service.cli.cli, list(words))
        finally:
            os.chdir(before)
        assert result.exit_code == code, (words, result.output, result.exception)
        return result

    def json(self, *words: str, code: int = 0):
        """The JSON document that a command prints."""
        return json.loads(self.type(*words, "--json", code=code).stdout)

    def git(self, *words: str) -> str:
        """Runs git in the checkout."""
        names = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.checkout), **names}
        done = subprocess.run(
            ["git", *words], cwd=self.checkout, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def claimed_with_log(self, text: str) -> int:
        """A job that is being measured and has printed so; its number."""
        body = {"project": "o/r", "head_sha": "f" * 40}
        self.service.client.post("/api/v1/jobs", json=body, headers=self.service.write_headers)
        claimed = self.service.claim().json()
        held = {"fencing_token": claimed["attempt"]["fencing_token"], "sequence": 0, "text": text}
        assert self.service.worker(f"/attempts/{claimed['attempt']['id']}/log", held).is_success
        return int(claimed["job"]["id"])


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """The commands see the API alone: one kind of database is enough."""
    return sqlite_url


@pytest.fixture
def terminal(service, tmp_path: Path) -> Iterator[Terminal]:
    """A checkout with a first-parent line of five commits, of a project that the served application knows."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(service.app, log_level="error", ws="none", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        checkout = tmp_path / "checkout"
        checkout.mkdir()
        user = Terminal(service, checkout, f"http://127.0.0.1:{listening.getsockname()[1]}")
        user.git("init", "--quiet", "--initial-branch", "main")
        for number in range(5):
            user.git("commit", "--quiet", "--allow-empty", "-m", f"commit {number}")
        user.git("remote", "add", "origin", "git@github.com:o/r.git")
        user.type("project", "add", "o/r")
        service.hello()
        yield user
        server.should_exit = True
        thread.join(timeout=20)


def answer(terminal: Terminal, outcome) -> None:
    """Has every waiting job measured by `outcome(position of the head along main)`."""
    line = terminal.git("rev-list", "--first-parent", "--reverse", "main").split()
    service = terminal.service
    while (claimed := service.claim()).status_code == 200:
        job, attempt = claimed.json()["job"], claimed.json()["attempt"]
        position = line.index(job["head_sha"])
        facts = {"message": "m", "author_name": "A", "author_email": "a@b.c", "parents": []}
        commits = {"head": job["head_sha"], "base": job["base_sha"] or line[position - 1]}
        resolved = {key: {"sha": sha, "authored_at": "2026-01-02T03:04:05Z", **facts} for key, sha in commits.items()}
        held = {"fencing_token": attempt["fencing_token"]}
        service.worker(f"/attempts/{attempt['id']}/heartbeat", {**held, "resolved": resolved})
        service.worker(f"/attempts/{attempt['id']}/log", {**held, "sequence": 0, "text": f"measuring {position}\n"})
        manifests = {"head": MANIFEST, "base": MANIFEST}
        body = {**held, "status": "measured", "report": outcome(position), "manifests": manifests}
        assert service.worker(f"/attempts/{attempt['id']}/report", body).status_code == 200
        service.work_off()


def test_a_commit_is_submitted_followed_and_gated(terminal, make_report):
    assert terminal.type("gate", code=2).output.strip().endswith("`gprojci submit o/r SHA` makes one")
    head = terminal.git("rev-parse", "HEAD")
    (made,) = terminal.json("submit")
    assert (made["head_sha"], made["base_sha"], made["state"]) == (head, None, "queued")
    assert terminal.json("submit", "o/r", head)[0]["id"] == made["id"], "asking twice measures once"
    assert terminal.json("gate", "--no-wait", code=3)["word"] == "pending"
    assert f"{made['id']}    queued" in terminal.type("status").output
    answer(terminal, lambda _: make_report())
    assert terminal.json("gate", "HEAD")["word"] == "pass"
    assert terminal.type("logs", "-f", "HEAD").stdout == "measuring 4\n"
    assert terminal.json("logs", str(made["id"]))["log"] == "measuring 4\n"
    assert "pass: 1 of 1 limits hold" in terminal.type("status", head[:8]).output
    assert "attempt 1: reported" in terminal.type("status", str(made["id"])).output
    terminal.type("submit", "HEAD~1", "--base", "HEAD~3")
    answer(terminal, lambda _: make_report(dq=0.02))
    assert terminal.type("gate", "HEAD~1", code=1).output.startswith("fail")
    terminal.type("submit", "HEAD~1", "--base", "HEAD~3", "--wait", code=1)


def test_history_is_backfilled_compared_searched_and_exported(terminal, make_report, monkeypatch):
    monkeypatch.setattr(export, "PAGE", 3)
    assert len(terminal.json("backfill", "HEAD~4..HEAD", "--every", "2")["created"]) == 2
    answer(terminal, lambda position: make_report(dq=0.02 if position >= 3 else 0.002))
    found = terminal.json("compare", "HEAD~2", "HEAD", "--exit-code", code=1)
    assert (found["same_session"], found["worse"]) == (True, 2)
    assert "worse    10.0×" in terminal.type("compare", "HEAD~2", "HEAD").output
    jobs = [str(job["id"]) for job in terminal.json("job", "list", "--kind", "backfill")]
    assert terminal.json("compare", *reversed(jobs))["same_session"] is False
    started = terminal.json("bisect", "--good", "HEAD~4", "--metric", "dq_error", "--no-follow")
    assert (started["state"], started["commits"]) == ("running", 4)
    answer(terminal, lambda position: make_report(dq=0.02 if position >= 3 else 0.002))
    shown = terminal.type("bisect", "status", str(started["id"]), "--follow", code=1).output
    assert f"found: {terminal.git('rev-parse', 'HEAD~1')} is the first commit" in shown
    assert "found" in terminal.type("bisect", "list").output
    written = terminal.checkout / "samples.csv"
    terminal.type("export", "-o", str(written), "--metric", "dq_error")
    rows = written.read_text().splitlines()
    lines = [json.loads(line) for line in terminal.type("export", "--format", "jsonl").stdout.splitlines()]
    assert rows[0] == ",".join(lines[0]) == ",".join(export.FIELDS)
    assert len(rows) - 1 == sum(line["metric"] == "dq_error" for line in lines) == 10
    assert "no commit lies between" in terminal.type("bisect", "--good", "HEAD", "--metric", "dq_error", code=2).output


def test_projects_tokens_and_schedules_are_managed(terminal):
    assert "o/r: main is measured next" in terminal.type("schedule", "set").output
    assert terminal.json("schedule", "list")[0]["cron"] == "0 2 * * *"
    assert json.loads(terminal.type("schedule", "--json", "list").stdout) == terminal.json("schedule", "list")
    terminal.type("schedule", "set", "whenever", code=2)
    terminal.type("schedule", "remove")
    secret = terminal.json("token", "create", "ci", "--scope", "admin", "--expires-in-days", "3")
    assert "expires" in terminal.type("token", "list", GPROJCI_TOKEN=secret["secret"]).output
    terminal.type("token", "revoke", str(secret["id"]))
    assert "revoked" in terminal.type("token", "list", code=2, GPROJCI_TOKEN=secret["secret"]).output
    assert "nobody is there" in terminal.type("project", "remove", "o/r", code=2).output
    assert "It cannot be undone" in terminal.type("project", "remove", "o/r", "--yes").output
    assert terminal.json("project", "list") == []
    assert "is of no project" in terminal.type("gate", code=2).output


@pytest.mark.parametrize(
    "address", ["http://github.com/O/R", "ssh://git@github.com/o/r.git", "https://github.com/o/r/"]
)
def test_every_spelling_of_the_origin_is_the_same_project(terminal, address):
    terminal.git("remote", "set-url", "origin", address)
    assert terminal.json("submit")[0]["state"] == "queued"


def test_each_error_is_one_line_that_says_what_to_do(terminal, monkeypatch, capsys):
    def typed(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["gprojci", *words])
        with pytest.raises(SystemExit) as ended:
            gprojci_service.cli.main()
        return ended.value.code, capsys.readouterr().err

    monkeypatch.chdir(terminal.checkout)
    monkeypatch.setenv("GPROJCI_URL", terminal.url)
    code, words = typed("submit")
    assert (code, words.count("\n"), "--token or GPROJCI_TOKEN" in words) == (2, 1, True)
    code, words = typed("status", "--url", "http://127.0.0.1:9")
    assert (code, words.count("\n"), "is the service running at --url" in words) == (3, 1, True)
    code, words = typed("backfill", "HEAD")
    assert (code, words) == (
        2,
        "gprojci: RANGE 'HEAD': write OLD..NEW, such as v1.0..main; see `gprojci backfill --help`\n",
    )
    code, words = typed("bisect", "--metric", "dq_error")
    assert (code, words) == (2, "gprojci: Missing option '--good'; see `gprojci bisect start --help`\n")
    assert typed("--help")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["regression", "--url", "here", "list"],
        ["regression", "list", "--url", "here"],
        ["regression", "--url", "http://127.0.0.1:9", "list", "--url", "here"],
        ["notification", "--url", "here", "remove", "1"],
        ["github", "--url", "here", "setup"],
        ["bisect", "--url", "here", "list"],
        ["bisect", "--url", "here", "--good", "HEAD", "--metric", "dq_error"],
        ["bisect", "--good", "HEAD", "--url", "here", "--metric", "dq_error"],
    ],
    ids=" ".join,
)
def test_a_group_takes_the_address_before_its_commands_and_they_take_it_after(words):
    answered = CliRunner().invoke(gprojci_service.cli.cli, words)
    assert (answered.exit_code, "'here' must begin with http://" in answered.output) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_the_command(shell):
    printed = CliRunner().invoke(gprojci_service.cli.cli, ["completion", shell])
    assert "_GPROJCI_COMPLETE" in printed.output
    at = "sch" if shell == "fish" else "1"  # fish says the word, the others its position
    asked = {"_GPROJCI_COMPLETE": f"{shell}_complete", "COMP_WORDS": "gprojci sch", "COMP_CWORD": at}
    answered = CliRunner(env=asked).invoke(gprojci_service.cli.cli, [], prog_name="gprojci")
    assert "schedule" in answered.output


def test_the_help_names_every_command_once():
    listed = [name for names in gprojci_service.cli.SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(gprojci_service.cli.cli.commands)


def test_workers_are_listed_and_drained(terminal):
    terminal.service.hello()
    assert terminal.type("worker", "list").stdout.split()[:4] == ["worker", "hardware", "job", "seen"]
    assert terminal.json("worker", "drain", "host-1", "--wait")["draining_at"]
    assert "drained" in terminal.type("worker", "list").stdout
    assert terminal.json("worker", "resume", "host-1")["draining_at"] is None
    terminal.type("worker", "drain", "nobody", code=2)


def borrow(terminal: Terminal, *command: str, **environment: str) -> subprocess.Popen[str]:
    """Starts `gprojci worker borrow host-1` with a command, as a process of its own."""
    words = [sys.executable, "-P", "-m", "gprojci_service", "worker", "borrow", "host-1", *command]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(words, env={**os.environ, **terminal.environment, **environment}, text=True, **pipes)


def is_drained(terminal: Terminal) -> bool:
    """Whether host-1 gets no work."""
    return terminal.json("worker", "list")[0]["draining_at"] is not None


def test_a_command_has_the_host_to_itself_and_ends_with_its_own_code(terminal):
    code = "import sys; print(sys.argv[1:], flush=True); input(); sys.exit(7)"
    process = borrow(terminal, sys.executable, "-c", code, "--json", "-x")
    assert process.stdout.readline() == "['--json', '-x']\n"
    assert is_drained(terminal)
    second = borrow(terminal, "true")
    assert "worker 'host-1' has been drained since" in second.communicate(timeout=60)[1]
    assert (second.returncode, is_drained(terminal)) == (2, True)
    assert process.communicate("\n", timeout=60)[1].endswith("host-1 gets work again\n")
    assert (process.returncode, is_drained(terminal)) == (7, False)


def test_a_command_is_told_to_end_and_the_worker_gets_work_again(terminal):
    process = borrow(terminal, "sh", "-c", "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == "told\n"
    assert (process.returncode, is_drained(terminal)) == (5, False)
    killed = borrow(terminal, "sh", "-c", "kill -KILL $$")
    killed.communicate(timeout=60)
    assert (killed.returncode, is_drained(terminal)) == (137, False)


def test_a_command_waits_for_the_job_that_is_measured(terminal):
    terminal.service.client.post(
        "/api/v1/jobs", json={"project": "o/r", "head_sha": "f" * 40}, headers=terminal.service.write_headers
    )
    claimed = terminal.service.claim().json()
    measured = f"host-1 measures job {claimed['job']['id']}\n"
    told = borrow(terminal, "echo", "never run")
    assert told.stderr.readline() == measured
    told.send_signal(signal.SIGTERM)
    assert (told.communicate(timeout=60)[0], told.returncode, is_drained(terminal)) == ("", 143, False)
    process = borrow(terminal, "echo", "run")
    assert process.stderr.readline() == measured
    body = {"fencing_token": claimed["attempt"]["fencing_token"], "reason": "it stops"}
    assert terminal.service.worker(f"/attempts/{claimed['attempt']['id']}/return", body).status_code == 204
    assert process.communicate(timeout=60)[0] == "run\n"
    assert (process.returncode, is_drained(terminal)) == (0, False)


def test_a_service_that_goes_away_without_an_answer_leaves_nobody_in_doubt(terminal):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        threading.Thread(target=lambda: listening.accept()[0].close(), daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        process = borrow(terminal, "echo", "never run", GPROJCI_URL=url)
        said, errors = process.communicate(timeout=60)
    assert (said, process.returncode) == ("", 3)
    assert "host-1 may be drained now: gprojci worker list says so" in errors


def test_nothing_is_borrowed_for_a_command_that_is_not_there(terminal):
    assert "'no-such-command'" in terminal.type("worker", "borrow", "host-1", "no-such-command", code=2).output
    assert not is_drained(terminal)


def test_what_strangers_wrote_gives_a_terminal_no_orders(terminal: Terminal) -> None:
    """Titles, colours, cursor movements and marks that reorder: of names, logs and errors, as lines and as JSON."""
    hostile = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202eevil"
    terminal.type("token", "create", hostile, "--scope", "read")
    listed = terminal.type("token", "list").output
    assert "red2Jevil" in listed
    for output in (
        listed,
        terminal.type("token", "list", "--json").output,
        terminal.type("logs", hostile, code=2).output,
    ):
        assert not set(output) & set("\x1b\x07\x9b\u202e"), output
    claimed = terminal.claimed_with_log(hostile)
    assert terminal.type("logs", str(claimed)).output == "red2Jevil"
