"""The outbox of messages to channels: each is sent at least once, tried again for days, and then visibly given up.

GitHub's outbox is another one: its reports replace each other and must keep their order; these stand for themselves.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from gprojci_service.database import send_after_commit
from gprojci_service.models import Notification, NotificationChannel, now
from gprojci_service.notifications import formats, repository
from gprojci_service.notifications.delivery import DEADLINE_SECONDS, Answer, Letter
from gprojci_service.queue import NOTIFY
from gprojci_service.retries import next_attempt

SENDING = timedelta(seconds=3 * DEADLINE_SECONDS)
"""While a message is being sent nobody else sends it; longer than a delivery may take."""
GIVE_UP_AFTER = timedelta(days=3)


def enqueue(
    session: Session, channel: NotificationChannel, event: str, severity: str, body: dict[str, Any]
) -> Notification:
    """Puts a message into the outbox; it is sent after the commit."""
    made = Notification(
        channel_id=channel.id, message_id=f"msg_{uuid.uuid4().hex}", event=event, severity=severity, body=body
    )
    session.add(made)
    session.flush()
    send_after_commit(session, NOTIFY, made.id)
    return made


def take(session: Session, public_url: str, notification_id: int) -> Letter | None:
    """Takes a message for sending, or None where it is not its turn."""
    found, moment = repository.locked(session, notification_id), now()
    if found is None or found.state != "pending" or found.waits(moment):
        return None
    channel = repository.channel(session, found.channel_id)
    if channel is None or channel.disabled_reason is not None:
        found.state, found.detail = "failed", "not sent: the channel is disabled"
        return None
    found.attempts += 1
    found.next_attempt_at = moment + SENDING
    body = formats.addressed(found.body, public_url)
    return Letter(channel.kind, channel.url, channel.secret, found.message_id, body)


def record_answer(session: Session, notification_id: int, answer: Answer) -> None:
    """Notes what became of a message."""
    found = repository.locked(session, notification_id)
    if found is None or found.state != "pending":
        return
    moment = now()
    found.detail, found.next_attempt_at = answer.detail, None
    if answer.outcome == "sent":
        found.state, found.sent_at = "sent", moment
    elif answer.outcome == "gone":
        found.state = "failed"
        channel = repository.channel(session, found.channel_id)
        if channel is not None:
            channel.disabled_reason = f"the receiver answered {answer.detail} at {moment:%Y-%m-%d %H:%M} UTC"
    elif moment - found.created_at >= GIVE_UP_AFTER:
        found.state, found.detail = "failed", f"given up after {found.attempts} tries, the last: {answer.detail}"
    else:
        found.next_attempt_at = next_attempt(moment, found.attempts, answer.not_before)
