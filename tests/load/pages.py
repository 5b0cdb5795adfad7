"""The pages of a generated history: their addresses, with parameters that vary from request to request."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from shape import Shape

from gprojci_suite.contract import bundled


@dataclass(frozen=True)
class Page:
    """One page; `path` makes an address of it."""

    name: str
    path: Callable[[random.Random], str]
    draws: bool = False


def pages(shape: Shape, project: str) -> tuple[Page, ...]:
    """Every page that shows a history."""
    at = f"/projects/{project}"
    metrics = sorted({key.metric for key in shape.keys})
    whole = range(max(1, shape.commits - shape.full_reports), shape.commits)
    heads = [commit for commit in whole if not shape.is_pull_request(commit)]

    def sha(commit: int) -> str:
        return shape.sha(commit)[:10]

    def history(choose: random.Random, **more: str) -> str:
        key = choose.choice(shape.keys)
        return f"{at}/history?{urlencode({'metric': key.metric, 'input': key.case, **more})}"

    def some(choose: random.Random) -> str:
        first, last = sorted(choose.sample(range(1, shape.commits), 2))
        return history(choose, span="all", zoom=f"{sha(first)}..{sha(last)}")

    def one_session(choose: random.Random) -> str:
        head = choose.choice(list(whole))
        return f"{at}/compare?base={sha(shape.base(head) or 0)}&head={sha(head)}&input={choose.choice(shape.inputs)}"

    def two_sessions(choose: random.Random) -> str:
        older, newer = sorted(choose.sample(heads, 2))
        while shape.base(newer) == older:
            older, newer = sorted(choose.sample(heads, 2))
        return f"{at}/compare?base={sha(older)}&head={sha(newer)}"

    def job(choose: random.Random) -> str:
        return f"/jobs/{choose.choice(whole) + 1}?{urlencode({'input': choose.choice(shape.inputs)})}"

    def jobs(choose: random.Random) -> str:
        state = choose.choice(["", "pass", "fail", "queued", "cancelled"])
        return f"/jobs?{urlencode({'state': state, 'before': choose.randrange(2, shape.commits)})}"

    def of_project(choose: random.Random) -> str:
        return f"{at}?{urlencode({'ref': choose.choice(['', 'main']), 'before': choose.randrange(2, shape.commits)})}"

    def overview(choose: random.Random) -> str:
        return f"/?{urlencode({'input': choose.choice(shape.inputs)})}"

    def regressions(choose: random.Random) -> str:
        chosen = {"state": choose.choice(["open", "all"]), "sort": choose.choice(["newest", "changed"])}
        return f"/regressions?{urlencode(chosen)}"

    def regression(choose: random.Random) -> str:
        return f"/regressions/{choose.randint(1, max(1, (shape.commits - 1) // 10))}"

    def samples(choose: random.Random) -> str:
        return f"/api/v1/series/{choose.randint(1, len(shape.keys))}/samples"

    ratios = any(metric.endswith("_anchor") for metric in metrics)
    trained = any(name in shape.inputs for name in bundled.names())
    return (
        Page("overview", overview, ratios),
        Page("project", of_project, ratios),
        Page("history", history, True),
        Page("history, all", lambda choose: history(choose, span="all"), True),
        Page("history, a part", some, True),
        Page("compare", one_session, True),
        Page("compare, two sessions", two_sessions, True),
        Page("compare, form", lambda choose: f"{at}/compare"),
        Page("job", job, True),
        Page("job, without its report", lambda choose: f"/jobs/{choose.randint(1, max(1, whole.start))}"),
        Page("jobs", jobs),
        Page("inputs", lambda choose: "/inputs", trained),
        Page("regressions", regressions),
        Page("regression", regression, True),
        Page("workers", lambda choose: "/workers"),
        Page("reports", lambda choose: "/reports"),
        Page("API: series", lambda choose: f"/api/v1{at}/series"),
        Page("API: samples", samples),
    )
