"""Our one comment on a pull request: the commands taken and what came of them, the verdicts at the present head.

Source: GitHub's REST documentation, "Create an issue comment", "Update an issue comment", "Create reaction for an issue
comment".
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from gprojci_service.comments.language import LONGEST_LINE, help_table
from gprojci_service.github import outbox, repository
from gprojci_service.github.comments import MARK
from gprojci_service.github.markdown import MARKS, literal
from gprojci_service.models import GithubReport, Job, Project, PullRequest, PullRequestComment, Verdict

SHOWN_COMMANDS = 20
_WORDS = {
    "draft": "⏸️ waits for the draft to be ready",
    "awaiting_approval": "⏸️ waits for an approval",
    "queued": "⏳ queued",
    "running": "⏳ running",
    "deciding": "⏳ deciding",
    "cancelled": "🚫 cancelled",
}


def refresh_for(session: Session, job: Job) -> None:
    """Brings the comment up to date after something happened to a job, where there is one."""
    if job.pull_request_id is not None:
        refresh(session, session.get_one(PullRequest, job.pull_request_id))


def refresh(session: Session, pull_request: PullRequest) -> None:
    """Has the comment made or changed; nothing where nobody has commanded anything, or where it says all already."""
    before = repository.locked_comments(session, pull_request.id)  # who writes after another has read what that one did
    taken = repository.commands_taken(session, pull_request, SHOWN_COMMANDS)
    if not taken:
        return
    body = _body(session, pull_request, taken)
    if before and before[-1].payload["body"] == body:
        return
    path = f"/repos/{_repository(session, pull_request)}/issues/{pull_request.number}/comments"
    _enqueue(session, pull_request, "comment", path, {"body": body})


def react(session: Session, pull_request: PullRequest, github_id: int, content: str) -> None:
    """Has somebody's comment answered by a reaction."""
    path = f"/repos/{_repository(session, pull_request)}/issues/comments/{github_id}/reactions"
    _enqueue(session, pull_request, "reaction", path, {"content": content})


def _repository(session: Session, pull_request: PullRequest) -> str:
    return session.get_one(Project, pull_request.project_id).name


def _enqueue(session: Session, pull_request: PullRequest, kind: str, path: str, payload: dict[str, str]) -> None:
    report = GithubReport(
        pull_request_id=pull_request.id, kind=kind, phase="refreshed", method="POST", path=path, payload=payload
    )
    outbox.enqueue(session, report)


def _body(session: Session, pull_request: PullRequest, taken: list[PullRequestComment]) -> str:
    lines = [MARK, f"### GProj CI at commit {pull_request.head_sha[:10]}", "", "| gate | hardware | |", "|---|---|---|"]
    jobs = repository.jobs_at_head(session, pull_request)
    lines += [_job_line(session, job, verdict) for job, verdict in jobs] or ["| | | nothing is measured yet |"]
    lines += ["", "| command | by | what came of it |", "|---|---|---|"]
    for comment in reversed(taken):
        author = literal(comment.author)
        by = f"[{author}]({comment.html_url})" if comment.html_url else author
        for result in comment.results:
            mark = "" if result["ok"] else "⚠️ "
            lines.append(f"| {literal(result['line'], LONGEST_LINE)} | {by} | {mark}{result['text']} |")
    lines += ["", "<details><summary>Commands</summary>", "", help_table(), "", "</details>"]
    return "\n".join(lines)


def _job_line(session: Session, job: Job, verdict: Verdict | None) -> str:
    told = repository.newest(session, job.id, "check_run")
    link = f"[job {job.id}]({told.payload['details_url']})" if told is not None else f"job {job.id}"
    against = f" against {job.base_sha[:10]}, decides no merge" if job.kind == "baseline" and job.base_sha else ""
    if verdict is None:
        state = _WORDS.get(job.state, job.state)
        return f"| {state} | {job.hardware}{against} | {literal(job.detail or '')} {link} |"
    return (
        f"| {MARKS[verdict.verdict]} {verdict.verdict} | {job.hardware}{against} | {literal(verdict.summary)} {link} |"
    )
