"""How figures, pages and verdicts spell a number, and figures and pages a tensor, a pass and a SHA."""

from __future__ import annotations

import html
import math

SHA_DIGITS = 8
"""Digits of a SHA that are shown."""


def percent(fraction: float) -> str:
    """A fraction as percent with three sensible digits: 0.0035 → '0.35%', 44.8 → '4,480%'."""
    if math.isnan(fraction):
        return "NaN"
    if math.isinf(fraction):
        return "∞" if fraction > 0 else "−∞"
    value = fraction * 100
    size = abs(value)
    if size == 0:
        return "0%"
    if size >= 99.95:
        return f"{round(value, 2 - math.floor(math.log10(size))):,.0f}%"
    if size >= 9.995e-5:
        return f"{value:.3g}%"
    return f"{value:.1e}%"


def signed_percent(change: float) -> str:
    """A change as percent with its sign: 0.043 → '+4.3%', -0.02 → '−2%'."""
    size = abs(change)
    # Beside other changes of its kind, where more digits than a hundredth of a percent say nothing.
    text = f"{100 * size:.2f}".rstrip("0").rstrip(".") + "%" if 1e-4 <= size < 0.1 else percent(size)
    return f"{'−' if change < 0 else '+'}{text}"


def memory(size: float) -> str:
    """Bytes as GiB, MiB or KiB: 1.25 GiB, 643 MiB."""
    if size < 2**20:
        return f"{size / 2**10:.0f} KiB"
    if size < 2**30:
        return f"{size / 2**20:.0f} MiB"
    return f"{size / 2**30:.{2 if size < 10 * 2**30 else 1}f}".rstrip("0").rstrip(".") + " GiB"


def tensor_name(name: str) -> str:
    """A tensor of attention as it is written: dq → dQ; any other name as it is."""
    return {"dq": "dQ", "dk": "dK", "dv": "dV", "o": "O"}.get(name, name)


def pass_name(name: str) -> str:
    """A pass of attention as it is written: forward_backward → forward + backward."""
    return name.replace("_", " + ")


def multiple(ratio: float) -> str:
    """A ratio in digits that say something: 1.0432 → '1.043×', 2.897 → '2.90×', 230.4 → '230×', 21333 → '21,300×'."""
    if not math.isfinite(ratio):
        return percent(ratio).rstrip("%") + ("" if math.isnan(ratio) else "×")
    size = abs(ratio)
    if size >= 100:
        return f"{round(ratio, 2 - math.floor(math.log10(size))):,.0f}×"
    return f"{ratio:.{3 if size < 2 else 2 if size < 10 else 1}f}×"


def literal(text: str) -> str:
    """Text as plotly shows it unchanged: its labels read some HTML, but `&quot;` as six characters."""
    return html.escape(text, quote=False)
