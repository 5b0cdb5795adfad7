"""An inspection as one self-contained HTML page: tables and pictures drawn here, readable in light and dark."""

import math
from collections.abc import Callable, Sequence
from html import escape

import torch

from gprojci_suite.inspection import Inspection, SliceProfile
from gprojci_suite.readable import percent

STYLE = """
:root { color-scheme: light dark; --text: #1c2430; --faint: #5b6675; --line: #d5dbe3; --page: #ffffff;
  --s0: #0072b2; --s1: #b35000; --s2: #007a59; --s3: #a3447c; --s4: #6f5ec7; --s5: #8a6d00; }
@media (prefers-color-scheme: dark) { :root { --text: #e6eaf0; --faint: #9aa6b5; --line: #353e4a; --page: #12161c;
  --s0: #56b4e9; --s1: #f0914a; --s2: #35c79a; --s3: #e08bbd; --s4: #a99cf2; --s5: #e6c84d; } }
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } p { color: var(--faint); }
code { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: right; padding: .15rem .7rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, td:nth-last-child(1):nth-child(2) { text-align: left; } th { font-weight: 600; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg text.faint { fill: var(--faint); font-size: 11px; } svg line, svg path.axis { stroke: var(--line); }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .8rem; }
figure { margin: 0; } figcaption { color: var(--faint); font-size: 12px; }
""" + "\n".join(f".s{n} {{ fill: var(--s{n}); }}" for n in range(6))
LEFT, RIGHT, ROW = 110, 20, 20
WIDTH = 860


def page(found: Inspection) -> str:
    """The whole page; nothing in it is loaded from elsewhere."""
    about = found.description
    parts = [
        f"<h1>{escape(about.input)}</h1><p><code>{escape(about.content_hash)}</code><br>{escape(about.dtype)}, "
        f"{'causal' if about.causal else 'full mask'}, softmax scale {about.softmax_scale:.6g}</p>",
        "<h2>Expected error by emulation</h2><p>Relative Frobenius error against float64 of each slice (layer, "
        "batch, head). A slice in brackets vanishes: its gradient is below 1e-4 of the largest, its error means "
        "little.</p>",
        _legend(found.backends),
        *(f"<h2>{_symbol(tensor)}</h2>{error_picture(found, tensor)}" for tensor in ("dq", "dk")),
        "<h2>Keys: offset over spread</h2><p>Norm of the mean key over the root mean square distance of the keys from "
        "it. A backend whose rows of dS do not sum to zero adds it to dQ.</p>",
        bars([(s.slice, s.offset_spread) for s in about.statistics]),
        "<h2>Where the offset lies</h2><p>Mean key per dimension, over the deviation of the keys.</p>",
        _small(found.profiles, lambda p: _profile_picture(p.mean_key.tolist()), _largest_offset),
        "<h2>Spikiness</h2><p>How many rows give their strongest key which probability, from 0 to 1.</p>",
        _small(found.profiles, lambda p: _histogram_picture(p.top_probability), _median_probability),
        "<h2>Slices</h2>",
        _table(found),
        "<h2>Provenance</h2>",
        _rows([["", ""], *([key, value] for key, value in sorted(about.provenance.items()))]),
    ]
    title = f"{escape(about.input)}: inspection"
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def error_picture(found: Inspection, tensor: str) -> str:
    """One row per slice, one mark per backend, on a logarithmic axis."""
    by_backend = {name: found.error(name, tensor) for name in found.backends}
    slices = list(next(iter(by_backend.values())))
    values = [e.rel_err for errors in by_backend.values() for e in errors.values() if _drawable(e.rel_err)]
    low, high = _decades(values)
    # One lane per backend in each row, so that no mark hides another.
    lane = 7
    row_height = lane * len(by_backend) + 10
    height = row_height * len(slices) + 40
    marks = [_axis(low, high, height, percent)]
    for row, name in enumerate(slices):
        y = 10 + row_height * row + lane * len(by_backend) // 2
        vanishing = any(errors[name].vanishing for errors in by_backend.values())
        label = f"({name})" if vanishing else name
        marks.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(label)}</text>')
        for number, (backend, errors) in enumerate(by_backend.items()):
            value = errors[name].rel_err
            if _drawable(value):
                tip = f"{backend}, {name}: {percent(value)}"
                marks.append(_mark(number, _place(value, low, high), 13 + row_height * row + lane * number, tip))
    return _svg(WIDTH, height, marks, f"Expected error of {tensor} by slice and backend")


def bars(values: Sequence[tuple[str, float]]) -> str:
    """Horizontal bars on a logarithmic axis."""
    low, high = _decades([value for _, value in values if _drawable(value)])
    height = ROW * len(values) + 40
    marks = [_axis(low, high, height, lambda value: f"{value:g}")]
    for row, (name, value) in enumerate(values):
        y = 15 + ROW * row
        marks.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        if _drawable(value):
            end = _place(value, low, high)
            tip = f"<title>{escape(name)}: {value:.3g}</title>"
            marks.append(f'<rect class="s0" x="{LEFT}" y="{y - 6}" width="{end - LEFT:.1f}" height="12">{tip}</rect>')
    return _svg(WIDTH, height, marks, "Offset over spread of the keys by slice")


def _profile_picture(values: Sequence[float]) -> str:
    largest = max(map(abs, values)) or 1.0
    step = 200 / len(values)
    marks = ['<line x1="0" x2="200" y1="40" y2="40"/>']
    for number, value in enumerate(values):
        length = abs(value) / largest * 38
        top = 40 - length if value > 0 else 40
        tip = f"<title>dimension {number}: {value:.3g}</title>"
        marks.append(
            f'<rect class="s0" x="{number * step:.2f}" y="{top:.2f}" width="{step * 0.8:.2f}" height="{length:.2f}">'
            f"{tip}</rect>"
        )
    return _svg(200, 80, marks, "Mean key per dimension")


def _histogram_picture(values: torch.Tensor) -> str:
    counts = torch.histc(values, bins=20, min=0.0, max=1.0).tolist()
    largest = max(counts) or 1.0
    marks = ['<line x1="0" x2="200" y1="80" y2="80"/>']
    for number, count in enumerate(counts):
        length = count / largest * 76
        tip = f"<title>{number / 20:.2f} to {(number + 1) / 20:.2f}: {count:.0f} rows</title>"
        marks.append(
            f'<rect class="s2" x="{number * 10}" y="{80 - length:.2f}" width="9" height="{length:.2f}">{tip}</rect>'
        )
    return _svg(200, 82, marks, "Rows by the probability of their strongest key")


def _largest_offset(profile: SliceProfile) -> str:
    return f"up to {float(profile.mean_key.abs().max()):.3g}"


def _median_probability(profile: SliceProfile) -> str:
    return f"median {float(profile.top_probability.median()):.3f}" if profile.top_probability.numel() else "no key seen"


def _small(
    profiles: Sequence[SliceProfile], draw: Callable[[SliceProfile], str], tell: Callable[[SliceProfile], str]
) -> str:
    figures = [
        f"<figure>{draw(p)}<figcaption>{escape(p.slice)}: {escape(tell(p))}</figcaption></figure>" for p in profiles
    ]
    return f'<div class="small">{"".join(figures)}</div>'


def _table(found: Inspection) -> str:
    head = ["slice", "offset / spread", "largest logit", "median top probability"]
    head += [f"{tensor} {name}" for tensor in ("dq", "dk") for name in found.backends]
    errors = {(tensor, name): found.error(name, tensor) for tensor in ("dq", "dk") for name in found.backends}
    rows = [head]
    for s in found.description.statistics:
        # The gradient of a key head belongs to the slice of that head; a query head without one has none of its own.
        cells = [percent(by_slice[s.slice].rel_err) if s.slice in by_slice else "" for by_slice in errors.values()]
        numbers = [f"{s.offset_spread:.3g}", f"{s.largest_logit:.4g}", f"{s.median_top_probability:.3f}"]
        rows.append([s.slice, *numbers, *cells])
    return _rows(rows)


def _rows(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = rows
    top = f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>" if any(head) else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rest)
    return f'<div class="scroll"><table>{top}{body}</table></div>'


def _legend(backends: Sequence[str]) -> str:
    marks = []
    for number, name in enumerate(backends):
        x = 10 + 200 * number
        marks += [_mark(number, x, 12, name), f'<text x="{x + 12}" y="16">{escape(name)}</text>']
    return _svg(max(WIDTH, 200 * len(backends)), 24, marks, "Backends")


def _mark(number: int, x: float, y: float, tip: str) -> str:
    """Backends differ in shape as well as in colour."""
    size = 5
    shapes = (
        f'<circle cx="{x:.1f}" cy="{y}" r="{size}"',
        f'<rect x="{x - size:.1f}" y="{y - size}" width="{2 * size}" height="{2 * size}"',
        f'<path d="M{x:.1f} {y - 6} l6 11 h-12 z"',
        f'<path d="M{x:.1f} {y - 7} l6 7 l-6 7 l-6 -7 z"',
        f'<path d="M{x - 6:.1f} {y - 5} h12 l-6 11 z"',
        f'<path d="M{x - 2:.1f} {y - 6} h4 v4 h4 v4 h-4 v4 h-4 v-4 h-4 v-4 h4 z"',
    )
    return f'{shapes[number % len(shapes)]} class="s{number % 6}"><title>{escape(tip)}</title></{_tag(shapes, number)}>'


def _tag(shapes: Sequence[str], number: int) -> str:
    return shapes[number % len(shapes)][1:].split(" ", 1)[0]


def _drawable(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _decades(values: Sequence[float]) -> tuple[int, int]:
    if not values:
        return 0, 1
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _place(value: float, low: int, high: int) -> float:
    return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)


def _axis(low: int, high: int, height: int, label: Callable[[float], str]) -> str:
    lines = []
    step = max(1, math.ceil((high - low) / 10))
    for power in range(low, high + 1, step):
        x = _place(10.0**power, low, high)
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{height - 24}"/>')
        text = escape(label(10.0**power))
        lines.append(f'<text class="faint" x="{x:.1f}" y="{height - 8}" text-anchor="middle">{text}</text>')
    return "".join(lines)


def _svg(width: int, height: int, marks: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(title)}">{"".join(marks)}</svg>'
    )


def _symbol(tensor: str) -> str:
    return {"dq": "dQ", "dk": "dK"}[tensor]
