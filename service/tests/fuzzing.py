"""Documents with one or two places made something else, for fuzzers: deterministic and bounded, so that CI runs them.

FUZZ_EXAMPLES=5000 in the environment searches longer, each time elsewhere.
"""

from __future__ import annotations

import copy
import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st


def bounded(examples: int) -> settings:
    """So many examples, the same each time, unless the environment says how many."""
    return settings(
        max_examples=int(os.environ.get("FUZZ_EXAMPLES", examples)),
        derandomize="FUZZ_EXAMPLES" not in os.environ,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


HOSTILE = st.sampled_from(
    [
        *(
            None,
            True,
            -1,
            0,
            2**63,
            10**400,
            -0.0,
            1e308,
            "",
            "\0",
            "\ud800",
            "a" * 5000,
            [],
            {},
            [[]] * 50,
            {"": {"": []}},
        ),
        *("../../etc/passwd", "<script>", "\x1b]0;owned\x07", "$(id)", "' OR 1=1 --", "ext::sh -c id"),
    ]
)
JUNK = HOSTILE | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a JSON document."""
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """The document with one or two of its values replaced or gone."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        *above, last = draw(st.sampled_from(places(changed)[1:] or [("x",)]))
        holder = changed
        for key in above:
            holder = holder[key]
        if not isinstance(holder, dict | list):
            continue
        if draw(st.booleans()) or not isinstance(holder, dict):
            holder[last] = copy.deepcopy(draw(JUNK))
        else:
            holder.pop(last, None)
    return changed
