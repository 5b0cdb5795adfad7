"""What channels can be told of."""

from __future__ import annotations

EVENTS = {
    "gate.failed": "a verdict `fail` on the default branch",
    "infrastructure.error": "a verdict `error` on the default branch: a worker lost too often, a checkout that fails",
    "regression.opened": "a regression is new",
    "regression.reopened": "a fixed regression is back",
    "regression.fixed": "a regression is fixed",
    "training.wrong": "a training's check found something wrong and was asked to tell",
    "channel.test": "somebody asked for a test of the channel; goes to that one whatever it asked for",
}
