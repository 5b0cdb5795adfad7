"""GitHub's own example payloads.

`github_examples.json.xz` is a selection of npm's `@octokit/webhooks-examples` 7.6.1, MIT: one or two of every event and
action that is handled, one of every other event. The file names its source and carries the licence.
"""

from __future__ import annotations

import copy
import json
import lzma
from pathlib import Path
from typing import Any

EXAMPLES = json.loads(lzma.decompress(Path(__file__).with_name("github_examples.json.xz").read_bytes()))["examples"]


def example(event: str, action: str | None = None, **fields: Any) -> dict[str, Any]:
    """A copy of the first example of an event and action whose fields have these values."""
    for entry in EXAMPLES:
        payload = entry["payload"]
        same = payload.get("action") == action and all(payload.get(name) == value for name, value in fields.items())
        if entry["event"] == event and same:
            return copy.deepcopy(payload)
    raise AssertionError(f"no example of {event} {action} {fields}")
