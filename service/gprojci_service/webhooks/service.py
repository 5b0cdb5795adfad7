"""Decisions about webhooks: is it authentic, was it seen, what became of it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from gprojci_service import logs
from gprojci_service.database import send_after_commit
from gprojci_service.errors import PayloadInvalid, SignatureInvalid
from gprojci_service.github import signature
from gprojci_service.models import now
from gprojci_service.queue import PROCESS_DELIVERY
from gprojci_service.settings import Settings
from gprojci_service.webhooks import events, repository
from gprojci_service.webhooks.schemas import Accepted, Delivery

logger = logging.getLogger(__name__)
_ESCAPES = re.compile(rb"\\u(0000|[dD][89a-fA-F])")


def check_signature(body: bytes, header: str | None, settings: Settings) -> None:
    """Raises:
    SignatureInvalid: the body was signed with none of the service's secrets.
    """
    if not any(signature.is_valid(body, secret, header) for secret in settings.webhook_secrets):
        raise SignatureInvalid(
            "X-Hub-Signature-256 does not fit the body; "
            "set the same secret in GitHub's webhook and in GPROJCI_WEBHOOK_SECRET"
        )


def read(event: str | None, delivery_id: str | None, body: bytes) -> Delivery:
    """Reads an authentic delivery's headers and body.

    Raises:
        PayloadInvalid: headers are missing or the body is not a JSON object.
    """
    if not event or not delivery_id:
        raise PayloadInvalid("the headers X-GitHub-Event and X-GitHub-Delivery are both needed")
    try:
        payload = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise PayloadInvalid(
            f"the body is not JSON ({error}); choose content type application/json in GitHub"
        ) from error
    if not isinstance(payload, dict):
        raise PayloadInvalid("the body is JSON but not an object")
    return Delivery(delivery_id, event, _storable(payload) if _ESCAPES.search(body) else payload)


def receive(session: Session, deliveries: Sequence[Delivery]) -> list[Accepted]:
    """Stores each delivery once and has them processed; a redelivery of one not yet processed runs it again."""
    numbers = repository.add(session, deliveries)
    repeated = [delivery.delivery_id for delivery in deliveries if delivery.delivery_id not in numbers]
    numbers |= repository.unprocessed(session, repeated) if repeated else {}
    taken = [delivery for delivery in deliveries if delivery.delivery_id in numbers]
    for delivery in taken:
        logs.note(delivery=delivery.delivery_id)
        logger.info("%s taken", delivery.event)
    if taken:  # in the order in which they came, each once
        send_after_commit(session, PROCESS_DELIVERY, *dict.fromkeys(numbers[one.delivery_id] for one in taken))
    return [
        Accepted(status="accepted" if one.delivery_id in numbers else "duplicate", delivery=one.delivery_id)
        for one in deliveries
    ]


def process(session: Session, settings: Settings, row_id: int) -> None:
    """Does what a stored delivery asks for, once; one that cannot be understood is marked failed, with the reason."""
    delivery = repository.locked(session, row_id)
    if delivery is None or delivery.state != "received":
        return
    logs.note(delivery=delivery.delivery_id)
    try:
        delivery.state, delivery.detail = events.handle(session, settings, delivery.event, delivery.payload)
    except ValidationError as error:
        first = error.errors()[0]
        delivery.state = "failed"
        delivery.detail = f"payload: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        logger.warning("%s: %s", delivery.event, delivery.detail)
    else:
        logger.info("%s %s: %s", delivery.event, delivery.state, delivery.detail)
    delivery.processed_at = now()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _storable(value: Any) -> Any:
    """The value with U+FFFD for what PostgreSQL's JSONB cannot hold: U+0000 and halves of surrogate pairs."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\x00", "�")
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return value
