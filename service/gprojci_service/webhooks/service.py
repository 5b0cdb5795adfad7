"""Decisions about webhooks: is it authentic, was it seen, what does it ask for."""

from __future__ import annotations

import json
import logging
from typing import Any

from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gprojci_service.database import send_after_commit
from gprojci_service.errors import PayloadInvalid, SignatureInvalid
from gprojci_service.github import signature
from gprojci_service.jobs import service as jobs
from gprojci_service.models import Project, WebhookDelivery, now
from gprojci_service.projects import service as projects
from gprojci_service.queue import PROCESS_DELIVERY
from gprojci_service.settings import Settings
from gprojci_service.webhooks import repository
from gprojci_service.webhooks.schemas import Accepted, Installation, PullRequestEvent, Push, Repository

logger = logging.getLogger(__name__)
_BRANCH = "refs/heads/"


def check_signature(body: bytes, header: str | None, settings: Settings) -> None:
    """Raises:
    SignatureInvalid: the body was signed with none of the service's secrets.
    """
    if not any(signature.is_valid(body, secret, header) for secret in settings.webhook_secrets):
        raise SignatureInvalid(
            "X-Hub-Signature-256 does not fit the body; "
            "set the same secret in GitHub's webhook and in GPROJCI_WEBHOOK_SECRET"
        )


def receive(session: Session, *, event: str | None, delivery_id: str | None, body: bytes) -> Accepted:
    """Stores an authentic delivery once and has it processed; a redelivery of one not yet processed runs it again.

    Raises:
        PayloadInvalid: headers are missing or the body is not a JSON object.
    """
    if not event or not delivery_id:
        raise PayloadInvalid("the headers X-GitHub-Event and X-GitHub-Delivery are both needed")
    try:
        payload = json.loads(body)
    except ValueError as error:
        raise PayloadInvalid(
            f"the body is not JSON ({error}); choose content type application/json in GitHub"
        ) from error
    if not isinstance(payload, dict):
        raise PayloadInvalid("the body is JSON but not an object")
    if "\\u0000" in body.decode("utf-8", "replace"):
        payload = _without_nul(payload)  # PostgreSQL's JSONB cannot hold U+0000

    known = repository.by_delivery_id(session, delivery_id)
    if known is None:
        action = payload.get("action")
        known = WebhookDelivery(
            delivery_id=delivery_id, event=event, payload=payload, action=action if isinstance(action, str) else None
        )
        try:
            with session.begin_nested():
                session.add(known)
        except IntegrityError:
            return Accepted(status="duplicate", delivery=delivery_id)
    elif known.state != "received":
        return Accepted(status="duplicate", delivery=delivery_id)
    send_after_commit(session, PROCESS_DELIVERY, known.id)
    return Accepted(status="accepted", delivery=delivery_id)


def process(session: Session, settings: Settings, row_id: int) -> None:
    """Does what a stored delivery asks for, once; one that cannot be understood is marked failed, with the reason."""
    delivery = repository.locked(session, row_id)
    if delivery is None or delivery.state != "received":
        return
    try:
        delivery.state, delivery.detail = _dispatch(session, settings, delivery)
    except ValidationError as error:
        first = error.errors()[0]
        delivery.state = "failed"
        delivery.detail = f"payload: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        logger.warning("delivery %s of %s: %s", delivery.delivery_id, delivery.event, delivery.detail)
    delivery.processed_at = now()


def _dispatch(session: Session, settings: Settings, delivery: WebhookDelivery) -> tuple[str, str]:
    match delivery.event:
        case "ping":
            return "processed", "pong"
        case "push":
            return _push(session, settings, Push.model_validate(delivery.payload))
        case "pull_request":
            return _pull_request(session, settings, PullRequestEvent.model_validate(delivery.payload))
        case other:
            return "ignored", f"event {other} asks for nothing here"


def _push(session: Session, settings: Settings, push: Push) -> tuple[str, str]:
    if push.deleted or not push.ref.startswith(_BRANCH):
        return "ignored", "not a push to a branch"
    project = _project(session, push.repository, push.installation)
    branch = push.ref.removeprefix(_BRANCH)
    if branch != project.default_branch:
        return "ignored", f"branch {branch} is measured through its pull request"
    head = push.head_commit
    if head is not None and head.id == push.after:
        projects.record_commit(
            session,
            project.id,
            push.after,
            message=head.message,
            author_name=head.author.name,
            author_email=head.author.email,
            authored_at=head.timestamp,
        )
    created = jobs.create(session, settings, project, kind="push", head_sha=push.after, base_sha=None, ref=branch)
    return "processed", _described(created)


def _pull_request(session: Session, settings: Settings, event: PullRequestEvent) -> tuple[str, str]:
    project = _project(session, event.repository, event.installation)
    payload = event.pull_request
    from_fork = payload.head.repo is None or payload.head.repo.id != event.repository.id
    pull_request = projects.record_pull_request(
        session,
        project.id,
        event.number,
        title=payload.title,
        author_login=payload.user.login if payload.user else None,
        state="merged" if payload.merged else payload.state,
        draft=payload.draft,
        from_fork=from_fork,
        head_sha=payload.head.sha,
        head_ref=payload.head.ref,
        base_sha=payload.base.sha,
        base_ref=payload.base.ref,
        html_url=payload.html_url,
    )
    if event.action == "closed":
        cancelled = jobs.cancel_of_pull_request(session, pull_request.id, f"pull request {event.number} was closed")
        return "processed", f"{cancelled} job(s) cancelled"
    if event.action not in ("opened", "synchronize", "reopened"):
        return "ignored", f"action {event.action} changes no code"
    created = jobs.create(
        session,
        settings,
        project,
        kind="pull_request",
        head_sha=payload.head.sha,
        base_sha=payload.base.sha,
        ref=payload.head.ref,
        pull_request=pull_request,
    )
    return "processed", _described(created)


def _project(session: Session, repository_: Repository, installation: Installation | None) -> Project:
    return projects.register(
        session,
        github_id=repository_.id,
        name=repository_.full_name,
        clone_url=repository_.clone_url,
        html_url=repository_.html_url,
        default_branch=repository_.default_branch,
        private=repository_.private,
        installation_id=installation.id if installation else None,
    )


def _described(created: list[int]) -> str:
    return f"job(s) {', '.join(map(str, created))} made" if created else "its job existed already"


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "�")
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    return value
