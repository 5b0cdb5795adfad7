"""Comments as commands: who may give them, what each does, and how they are answered whatever GitHub does meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest
from github_server import Fault
from sqlalchemy import select, update

from gprojci_service.comments.language import CommandUnclear, lines, parse
from gprojci_service.jobs.tasks import reap
from gprojci_service.models import GithubReport, Job, Override, PullRequestComment, now
from gprojci_service.settings import load_settings

HEAD, BASE, NEXT, OLD = "a" * 40, "b" * 40, "c" * 40, "d" * 40
MANIFEST = '[backends.gproj]\nentry = "gproj:attention"\n[gate]\ndq_error_ceiling = 0.0035\n'


@pytest.fixture
def settings(settings, github, tmp_path):
    """The service's settings as an App that the stand-in for GitHub knows."""
    return load_settings(**{**settings.model_dump(), **github.settings(tmp_path)})


class Thread:
    """A pull request that somebody comments on."""

    def __init__(self, service, github, pull_request_payload, make_report):
        self.service, self.github, self.payload, self.make_report = service, github, pull_request_payload, make_report
        self.last = 900
        github.permissions = {"ada": "write", "max": "maintain", "root": "admin", "eve": "read", "tri": "triage"}

    def event(self, action="opened", head=HEAD, **changes):
        payload = self.payload(action, head, **changes)
        asked = {**payload["pull_request"], "number": 7, "updated_at": "2026-01-02T03:04:05Z"}
        self.github.pulls[7] = asked
        self.service.deliver("pull_request", payload)
        self.service.work_off()

    def comment(self, body, author="ada", *, seconds=300, work=True, **changes):
        """Comments so many seconds after now, by GitHub's clock; returns the reactions that it got."""
        self.last += 1
        moment = (now() + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        payload = {
            "action": "created",
            "issue": {"number": 7, "pull_request": {"url": "u"}},
            "comment": {
                "id": self.last,
                "body": body,
                "html_url": f"https://github.com/o/r/pull/7#issuecomment-{self.last}",
                "created_at": moment,
                "user": {"login": author},
            },
            "sender": {"login": author, "type": "User"},
            "repository": self.payload()["repository"],
            **changes,
        }
        self.service.deliver("issue_comment", payload)
        if work:
            self.service.work_off()
        return [content for number, content in self.github.reactions if number == self.last], payload

    def react(self, body, author="ada", **changes):
        (reaction,) = self.comment(body, author, **changes)[0]
        return reaction

    def ours(self):
        (comment,) = self.github.comments.values()
        return comment["body"]

    def measure(self, **report):
        self.service.hello()
        claimed = self.service.claim().json()
        body = {
            "fencing_token": claimed["attempt"]["fencing_token"],
            "status": "measured",
            "report": self.make_report(**report),
            "manifests": {"head": MANIFEST, "base": MANIFEST},
        }
        self.service.worker(f"/attempts/{claimed['attempt']['id']}/report", body)
        self.service.work_off()
        return self.service.job(claimed["job"]["id"])


@pytest.fixture
def thread(service, github, pull_request_payload, make_report):
    return Thread(service, github, pull_request_payload, make_report)


def test_run_measures_a_draft_without_waiting_for_it_to_be_ready(service, thread):
    thread.event(draft=True)
    assert thread.react("/gprojci run") == "rocket"
    assert [job["state"] for job in service.jobs()] == ["queued"]
    thread.event("synchronize", "c" * 40, draft=True, fork=True)
    assert service.jobs()[0]["state"] == "draft"
    assert thread.react(f"/gprojci approve {'c' * 40}") == "rocket"
    assert service.jobs()[0]["state"] == "queued"


def test_only_the_lines_a_comment_begins_with_are_commands():
    body = "\r\n /gprojci  run \r\n\n/GPROJCI accept x  y  z\nthanks!\n/gprojci cancel\n"
    assert lines(body) == ["/gprojci run", "/GPROJCI accept x y z"]
    assert lines("> /gprojci run\n/gprojci run") == lines("/gprojcirun") == lines("") == []
    accept = parse("/gprojci Accept gproj/dq_error_ceiling known since May")
    assert (accept.backend, accept.limit_key, accept.reason) == ("gproj", "dq_error_ceiling", "known since May")
    assert parse("/gprojci run ABCDEF0").sha == "abcdef0"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/gprojci", "no command behind"),
        ("/gprojci fly", "'fly'"),
        ("/gprojci rerun now", "nothing behind"),
        ("/gprojci baseline", "needs the SHA"),
        ("/gprojci baseline main", "'main' is no SHA"),
        ("/gprojci baseline ../../x", "is no SHA"),
        ("/gprojci accept dq_error_ceiling", "a reason"),
        ("/gprojci run a b", "at most a SHA"),
    ],
)
def test_what_is_no_command_says_why(line, says):
    with pytest.raises(CommandUnclear, match=says):
        parse(line)


def test_a_pull_request_is_commanded_by_comments(thread, service, github):
    thread.event()
    assert thread.react("/gprojci help\n\nplease") == "+1"
    assert "/gprojci baseline SHA" in thread.ours()
    assert "queued" in thread.ours()
    failed = thread.measure(dq=0.0038)
    assert (failed["verdict"]["verdict"], "❌ fail" in thread.ours()) == ("fail", True)  # it updates itself
    assert thread.react("/gprojci run") == "+1"
    assert (
        f"[job {failed['id']}]({service.settings.public_url}/jobs/{failed['id']}) is finished already" in thread.ours()
    )
    assert thread.react("/gprojci accept dq_error_ceiling <b>known</b> @all | since May", "root") == "+1"
    assert "✅ pass" in thread.ours()
    assert "\\<b\\>known\\</b\\> @\u200ball \\| since May" in thread.ours()
    assert github.statuses[-1]["state"] == "success"
    with service.context.database.session(writes=False) as session:
        override = session.scalars(select(Override)).one()
    assert (override.author, override.source, override.head_sha) == ("root", "comment", HEAD)
    assert override.source_url.endswith(f"#issuecomment-{thread.last}")
    assert thread.react("/gprojci rerun", "max") == "rocket"
    assert thread.react("/gprojci rerun") == "confused"  # it has not ended
    assert thread.react("/gprojci cancel") == "+1"
    (job, *_) = service.jobs()
    assert (job["state"], job["detail"]) == ("cancelled", "cancelled by ada in a comment")
    assert len(github.comments) == 1
    assert thread.ours().count("| /gprojci rerun |") == 2


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_several_commands_in_one_comment_and_one_of_them_wrong(thread, service):
    thread.event()
    assert thread.react("/gprojci cancel\n/gprojci fly\n/gprojci rerun") == "confused"
    assert [job["state"] for job in service.jobs()] == ["queued", "cancelled"]
    assert "there is no command 'fly'" in thread.ours()


@pytest.mark.parametrize("author", ["eve", "tri", "nobody"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_without_write_access_nothing_happens(thread, service, github, author):
    thread.event()
    claims_to_be = {"sender": {"login": author, "type": "User"}}
    assert thread.react("/gprojci cancel", author, **claims_to_be) == "-1"
    assert [job["state"] for job in service.jobs()] == ["queued"]
    assert github.comments == {}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_asks_for_nothing_is_not_even_asked_about(thread, service, github):
    thread.event()
    asked = len(github.requests)
    thread.comment("/gprojci cancel", action="edited")
    thread.comment("/gprojci cancel", action="deleted")
    thread.comment("/gprojci cancel", sender={"login": "gprojci[bot]", "type": "Bot"})
    thread.comment("/gprojci cancel", issue={"number": 7})
    thread.comment("hello\n/gprojci cancel")
    thread.comment("/gprojci cancel", repository={"id": 4711})
    assert len(github.requests) == asked
    assert [job["state"] for job in service.jobs()] == ["queued"]


def test_a_comment_that_comes_twice_is_carried_out_once(thread, service, github):
    thread.event()
    thread.measure()
    reactions, payload = thread.comment("/gprojci rerun")
    service.deliver("issue_comment", payload)  # the same comment under another delivery number
    service.work_off()
    assert (reactions, len(github.reactions), len(service.jobs())) == (["rocket"], 1, 2)


def let_time_pass(service):
    earlier = now() - timedelta(hours=1)
    with service.context.database.session(writes=True) as session:
        for table in (GithubReport, PullRequestComment):
            session.execute(update(table).values(created_at=earlier))
            session.execute(update(table).where(table.next_attempt_at.is_not(None)).values(next_attempt_at=earlier))
    service.context.github.rest._rests_until.clear()
    reap(service.context)
    service.work_off()


def test_an_outage_delays_commands_and_keeps_their_order(thread, service, github):
    thread.event()
    github.faults = [Fault(502), Fault(502)]
    assert thread.comment("/gprojci cancel")[0] == []
    assert thread.comment("/gprojci rerun")[0] == []  # waits for the one before it
    assert [job["state"] for job in service.jobs()] == ["queued"]
    for _ in range(3):
        let_time_pass(service)
    assert [job["state"] for job in service.jobs()] == ["queued", "cancelled"]
    assert [content for _, content in github.reactions] == ["+1", "rocket"]
    assert len(github.comments) == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_answer_outlives_a_lost_answer_and_a_deleted_comment(thread, service, github):
    thread.event()
    github.faults = [Fault(cut=True, after=True, method="POST", path="/issues/7/comments")]
    thread.comment("/gprojci help")
    let_time_pass(service)
    assert len(github.comments) == 1  # found again, not made twice
    github.comments.clear()
    thread.comment("/gprojci cancel")
    assert "cancelled" in thread.ours()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_github_refuses_is_final_and_says_why(thread, service, github):
    thread.event()
    github.faults = [Fault(403, message="Resource not accessible by integration", path="/permission")]
    assert thread.react("/gprojci cancel") == "confused"
    with service.context.database.session(writes=False) as session:
        comment = session.scalars(select(PullRequestComment)).one()
    assert (comment.state, "not accessible" in comment.detail) == ("failed", True)
    assert [job["state"] for job in service.jobs()] == ["queued"]


def test_an_untrusted_commit_is_approved_only_by_somebody_who_can_have_seen_it(thread, service):
    thread.event(fork=True)
    assert thread.react("/gprojci run", seconds=5) == "confused"  # pushed seconds before the comment
    assert f"`/gprojci approve {HEAD}`" in thread.ours()
    assert thread.react(f"/gprojci approve {HEAD[:10]}", seconds=5) == "confused"  # others can begin so too
    assert thread.react(f"/gprojci approve {NEXT[:10]}") == "confused"
    assert thread.react("/gprojci approve", "eve") == "-1"
    assert [job["state"] for job in service.jobs()] == ["awaiting_approval"]
    assert thread.react(f"/gprojci approve {HEAD}", seconds=5) == "rocket"
    (job,) = service.jobs()
    assert (job["state"], job["approved_by"]) == ("queued", "ada")
    thread.event("synchronize", NEXT, fork=True)
    assert service.jobs()[0]["state"] == "awaiting_approval"
    assert thread.react("/gprojci run", seconds=120) == "rocket"  # there for two minutes
    assert service.jobs()[0]["approved_by"] == "ada"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_baseline_is_on_the_base_branch_and_decides_no_merge(thread, service, github):
    thread.event()
    github.commits = {OLD: "behind", "e" * 40: "diverged"}
    assert thread.react(f"/gprojci baseline {OLD[:8]}") == "rocket"
    job, first = service.jobs()
    assert (job["kind"], job["head_sha"], job["base_sha"], first["state"]) == ("baseline", HEAD, OLD, "queued")
    assert github.statuses[-1]["context"] == f"gprojci/cpu against {OLD[:10]}"
    assert [run["name"] for run in github.check_runs.values()][-1] == f"GProj CI (cpu) against {OLD[:10]}"
    assert "decides no merge" in thread.ours()
    for sha, says in (("e" * 12, "is not on main"), ("f" * 12, "no single commit"), (OLD, "already")):
        assert thread.react(f"/gprojci baseline {sha}") == "confused"
        assert says in thread.ours()
    thread.event("edited", base={"sha": NEXT, "ref": "next"})  # the base was not changed: nothing superseded
    assert {one["state"] for one in service.jobs()} == {"queued"}
    service.client.post(f"/api/v1/jobs/{job['id']}/cancel", json={}, headers=service.write_headers)
    path = f"/api/v1/jobs/{job['id']}/rerun"
    assert service.client.post(path, headers=service.write_headers).json()["kind"] == "baseline"


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_pull_request_that_is_closed_takes_no_commands(thread, service):
    thread.event()
    thread.event("closed", state="closed")
    assert thread.react("/gprojci rerun") == "confused"
    assert "the pull request is closed" in thread.ours()
    with service.context.database.session(writes=False) as session:
        assert session.scalars(select(Job.state)).all() == ["cancelled"]
