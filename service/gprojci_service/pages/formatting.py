"""Numbers, times and untrusted text as the pages show them: sensible digits, units, no terminal escapes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from gprojci_dashboards import readable
from gprojci_dashboards.readable import SHA_DIGITS, multiple, percent, tensor_name
from gprojci_service.untrusted_text import clean as clean  # the pages take it from here, with the filters

DASH = "–"


def fraction(value: float | None) -> str:
    """A fraction as percent: 0.0035 → '0.35%'."""
    return DASH if value is None else percent(value)


def signed_percent(value: float | None) -> str:
    """A change as percent with its sign: 0.043 → '+4.3%', -0.02 → '−2%'."""
    return DASH if value is None else readable.signed_percent(value)


def ratio(value: float | None) -> str:
    """A ratio as a multiple: 1.043 → '1.043×', 230.4 → '230×'."""
    return DASH if value is None else multiple(value)


def seconds(value: float | None) -> str:
    """A measured time with a unit that keeps three digits: 0.00044 → '440 µs'."""
    if value is None:
        return DASH
    if not math.isfinite(value):
        return percent(value)
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    unit, size = next((pair for pair in units if abs(value) >= pair[1]), units[-1])
    scaled = value / size
    digits = 2 if scaled < 10 else 1 if scaled < 100 else 0
    return f"{scaled:,.{digits}f} {unit}"


def flops(tera: float) -> str:
    """10¹² FLOPs a second with a unit that keeps the number above one: 0.0027 → '2.7 GFLOP/s'."""
    return f"{number(tera)} TFLOP/s" if tera >= 1 else f"{number(tera * 1e3)} GFLOP/s"


def share(part: float) -> str:
    """A part of a whole as percent, with a digit behind the point only where it is small: 0.42 → '42%'."""
    return f"{part:.0%}" if part >= 0.1 else f"{part:.1%}"


def duration(value: float | None) -> str:
    """How long something took: 3.2 → '3.2 s', 192 → '3 min 12 s', 7300 → '2 h 1 min'."""
    if value is None:
        return DASH
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def by_unit(value: float | None, unit: str) -> str:
    """A value of a series in its unit: fraction, ratio, seconds or bytes."""
    return _BY_UNIT.get(unit, number)(value)


def number(value: float | None) -> str:
    """A plain number with three sensible digits and thousands separators; of a billion on its power of ten."""
    if value is None:
        return DASH
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e9):
        return f"{value:,.0f}"
    if not math.isfinite(value):
        return percent(value).rstrip("%")
    if 100 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def memory(value: float | None) -> str:
    """Bytes as GiB, MiB or KiB."""
    return DASH if value is None else readable.memory(value)


def ago(moment: datetime | None, *, now: datetime | None = None) -> Markup:
    """A moment as a <time>: relative in the text, absolute on hover; the browser may add the reader's own zone."""
    if moment is None:
        return Markup('<span class="none">{}</span>').format(DASH)
    passed = ((now or datetime.now(UTC)) - moment).total_seconds()
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        moment.astimezone(UTC).isoformat(timespec="seconds"), absolute(moment), relative(passed)
    )


def absolute(moment: datetime) -> str:
    """A moment in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def relative(passed: float) -> str:
    """Seconds since a moment, in words; negative ones lie ahead."""
    if passed < 0:
        return "just now" if passed > -60 else f"in {_span(-passed)}"
    return "just now" if passed < 10 else f"{_span(passed)} ago"


def _span(length: float) -> str:
    for size, name in ((86400 * 365, "year"), (86400 * 30, "month"), (86400, "day"), (3600, "hour"), (60, "min")):
        if length >= size:
            count = int(length // size)
            return f"{count} {name}" if name == "min" or count == 1 else f"{count} {name}s"
    return f"{int(length)} s"


def moment(value: str | None) -> datetime | None:
    """An ISO 8601 time of a report or step as a datetime in UTC; None for none or one that is not a time."""
    if not value:
        return None
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None  # a worker's own text; the page shows a dash rather than failing
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def short_sha(sha: str | None) -> str:
    """The first eight digits of a SHA."""
    return sha[:SHA_DIGITS] if sha else DASH


def first_line(text: str | None, width: int = 90) -> str:
    """The subject of a commit message, cut to `width`."""
    line = clean((text or "").strip().split("\n", 1)[0])
    return line if len(line) <= width else f"{line[: width - 1]}…"


def tensor(name: str) -> Markup:
    """dq → dQ, with nothing else changed."""
    return escape(tensor_name(name))


METRICS = {
    "error": "error",
    "forward_backward": "forward + backward",
    "forward": "forward",
    "backward": "backward",
    "step": "training step",
}


def metric(name: str) -> str:
    """A metric's key in words: dq_error → 'dQ error, median', forward_backward_ratio_anchor → '… time ÷ anchor'."""
    for key in ("dq", "dk", "dv", "o"):
        if name == f"{key}_error":
            return f"{tensor(key)} error, median"
        if name in (f"{key}_error_worst", f"{key}_worst"):
            return f"{tensor(key)} error, worst slice"
        if name == f"{key}_symmetry":
            return f"{tensor(key)} response to a key shift"
    for key in ("forward_backward", "forward", "backward", "step"):
        if name.startswith(f"{key}_"):
            against = (
                " relative to the anchor" if "ratio_anchor" in name else " relative to base" if "ratio" in name else ""
            )
            return f"{METRICS[key]} time{against}"
    return name.replace("_", " ")


_BY_UNIT: dict[str, Callable[[float | None], str]] = {
    "fraction": fraction,
    "ratio": ratio,
    "seconds": seconds,
    "bytes": memory,
}
_METRIC_KEYS = re.compile(
    r"\b(?:(?:dq|dk|dv|o)_(?:error_worst|error|worst|symmetry)"
    r"|peak_memory|(?:forward_backward|forward|backward|step)_(?:seconds|ratio_anchor|ratio))\b"
)


def spelled(text: str) -> str:
    """A sentence of the service with its metrics' keys in words."""
    return _METRIC_KEYS.sub(lambda found: metric(found[0]), text)


FILTERS: dict[str, Any] = {
    "fraction": fraction,
    "signed_percent": signed_percent,
    "ratio": ratio,
    "seconds": seconds,
    "duration": duration,
    "by_unit": by_unit,
    "number": number,
    "memory": memory,
    "ago": ago,
    "moment": moment,
    "short_sha": short_sha,
    "first_line": first_line,
    "clean": clean,
    "tensor": tensor,
    "metric": metric,
    "spelled": spelled,
}
"""What the templates call them."""
