"""How tables and messages for a terminal spell a number: three significant digits, no exponent where one is no help."""


def percent(fraction: float) -> str:
    """A fraction in percent: `0.203%`, `4480%`."""
    return f"{plain(fraction * 100)}%"


def plain(value: float) -> str:
    """A number as it is: `0.203`, `4480`."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"
