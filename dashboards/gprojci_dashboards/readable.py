"""How figures, pages and verdicts spell a number, and figures and pages a tensor and a pass."""

from __future__ import annotations

import math


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


def tensor_name(name: str) -> str:
    """A tensor of attention as it is written: dq → dQ; any other name as it is."""
    return {"dq": "dQ", "dk": "dK", "dv": "dV", "o": "O"}.get(name, name)


def pass_name(name: str) -> str:
    """A pass of attention as it is written: forward_backward → forward + backward."""
    return name.replace("_", " + ")
