"""Task: send one message of the outbox to its channel."""

from __future__ import annotations

from gprojci_service.context import Context
from gprojci_service.notifications import delivery, outbox


def notify(context: Context, notification_id: int) -> None:
    """Sends it outside of any transaction, then notes the answer."""
    settings = context.settings
    with context.database.session(writes=True) as session:
        letter = outbox.take(session, settings.public_url, notification_id)
    if letter is None:
        return
    answer = delivery.send(letter, private=settings.private_notifications)
    with context.database.session(writes=True) as session:
        outbox.record_answer(session, notification_id, answer)
