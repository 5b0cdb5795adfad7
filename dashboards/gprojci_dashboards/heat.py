"""Colours of errors around a limit: blue under it, orange beyond it, each side scaled on its own."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gprojci_dashboards import theme
from gprojci_dashboards.readable import percent


@dataclass(frozen=True)
class HeatScale:
    """Where errors (fractions) lie on a colour scale that turns at `centre`.

    Attributes:
        centre: the limit, a fraction.
        below, above: decades that the scale reaches under and beyond it.
    """

    centre: float
    below: float
    above: float

    def place(self, error: float | None) -> float | None:
        """−1 … 1 with the limit at 0; what is not finite is beyond everything, None stays None."""
        if error is None:
            return None
        if not math.isfinite(error):
            return 1.0
        if error <= 0:
            return -1.0
        away = math.log10(error / self.centre)
        return max(-1.0, min(1.0, away / (self.above if away > 0 else self.below)))

    def colours(self) -> dict[str, Any]:
        """What a heat map trace needs to be coloured so, with its colour bar above the figure."""
        return {
            "zmin": -1,
            "zmax": 1,
            "colorscale": [[stop, tone.light] for stop, tone in theme.HEAT],
            "colorbar": {
                "tickvals": [-1, 0, 1],
                "ticktext": [
                    percent(self.centre * 10**-self.below),
                    percent(self.centre),
                    percent(self.centre * 10**self.above),
                ],
                "tickangle": 0,
                "thickness": 10,
                "outlinewidth": 0,
                "tickfont": {"size": 11, "color": theme.MUTED.light},
                "orientation": "h",
                "y": 1.02,
                "yanchor": "bottom",
                "x": 0,
                "xanchor": "left",
                "len": 0.55,
            },
        }


def around(centre: float, errors: Iterable[float | None]) -> HeatScale:
    """The scale that holds `errors`.

    Each half is scaled on its own, so that a shade under the limit stays visible beside a thousandfold excess.
    """
    finite = [error for error in errors if error is not None and error > 0 and math.isfinite(error)]
    below = max((math.log10(centre / error) for error in finite if error < centre), default=1.0)
    above = max((math.log10(error / centre) for error in finite if error > centre), default=1.0)
    return HeatScale(centre, max(below, 0.5), max(above, 1.0))
