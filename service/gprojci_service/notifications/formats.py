"""The bodies of messages: our own JSON, and Slack's for incoming webhooks, which Mattermost and others take as well."""

from __future__ import annotations

import json
from typing import Any

_MARKS = {"info": "ℹ️", "warning": "⚠️", "critical": "🔴"}
_SLACK_LIMIT = 3000  # of a section's text


def message(event: str, moment: str, project: str, severity: str, title: str, path: str, facts: Any) -> dict[str, Any]:
    """The body of a signed webhook, in the form that Standard Webhooks recommends; `url` has no host yet."""
    data = {"project": project, "severity": severity, "title": title, "url": path, **facts}
    return {"type": event, "timestamp": moment, "data": data}


def addressed(body: dict[str, Any], public_url: str) -> dict[str, Any]:
    """The body with the address of its page."""
    return {**body, "data": {**body["data"], "url": public_url + body["data"]["url"]}}


def encode(kind: str, body: dict[str, Any]) -> bytes:
    """The bytes that are sent; the same for the same body."""
    shown = slack(body) if kind == "slack" else body
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def slack(body: dict[str, Any]) -> dict[str, Any]:
    """The same for people: a line with a link, and a text for where blocks are not shown.

    Source: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    """
    data = body["data"]
    text = f"{_MARKS[data['severity']]} {_escape(data['project'])}: {_escape(data['title'])}"
    line = f"{text}\n<{data['url']}|Open in GProj CI>"[:_SLACK_LIMIT]
    return {"text": text, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": line}}]}


def _escape(text: str) -> str:
    """Slack's three control characters; without them nobody is mentioned and no link is made."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
