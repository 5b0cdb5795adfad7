"""The rows of long tables and logs as HTML: a template's loop over thousands of cells takes most of a page's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from markupsafe import Markup, escape

from gprojci_service.pages.formatting import by_unit, clean, metric, ratio
from gprojci_service.pages.schemas import Cell, FindingView, LogLine, SliceRow, Table
from gprojci_service.results.comparison import Change

_BETWEEN = "\0"
"""Between the texts that are escaped at once; no text of a page has it."""


def table_rows(table: Table) -> Markup:
    """The body of a table of texts."""
    links = table.links or ("",) * len(table.rows)
    opened = ["<td>" if wordy else '<td class="num">' for wordy in table.wordy[1:]]
    return _joined(_row(row, link, opened) for row, link in zip(table.rows, links, strict=True))


def _row(row: tuple[str, ...], link: str, opened: list[str]) -> str:
    head, *cells = _escaped(row)
    if link:
        head = f'<a href="{escape(link)}">{head}</a>'
    rest = "".join(f"{tag}{cell}</td>" for tag, cell in zip(opened, cells, strict=True))
    return f'<tr data-row><th scope="row">{head}</th>{rest}</tr>'


def slice_rows(rows: Iterable[SliceRow]) -> Markup:
    """The body of the table of slices."""
    why = "Its reference gradient is below 1e-4 of the largest one: kept out of medians and gates."
    mark = f' <span class="tag" title="{why}">vanishing</span>'
    return _joined(
        f'<tr data-row><th scope="row" class="nowrap">{escape(clean(row.slice))}{mark if row.vanishing else ""}</th>'
        f"{''.join(map(_slice_cell, row.cells))}</tr>"
        for row in rows
    )


def _slice_cell(cell: Cell) -> str:
    text, more = _escaped((cell.text, cell.more))
    return f'<td class="num{" over" if cell.over else ""}"{_title(more)}>{text}</td>'


def _title(more: str) -> str:
    return f' title="{more}"' if more else ""


def finding_rows(badge: Callable[[str, bool], Markup], rows: Iterable[FindingView]) -> Markup:
    """The body of a table of findings; `badge` makes the mark of a verdict."""
    return _joined(_finding(badge(row.verdict, False), row) for row in rows)


def _finding(badge: Markup, row: FindingView) -> str:
    decides = row.verdict == "fail" and not row.accepted
    label, check, backend, where, value, interval, limit, text, accepted = _escaped(
        (
            row.label,
            row.check,
            clean(row.backend),
            clean(row.where),
            row.value,
            row.interval,
            row.limit,
            clean(row.text),
            clean(row.accepted),
        )
    )
    said = f'<span class="sub accepted">{accepted}</span>' if accepted else ""
    if not accepted and row.informative:
        said = _sub("informative, does not decide")
    worst, over = (' class="is-worst"', " over") if decides else ("", "")
    return (
        f"<tr{worst}><td>{badge}</td>"
        f'<th scope="row">{label}{said}<span class="sub"><code>{check}</code></span></th>'
        f'<td class="nowrap">{backend}</td><td class="nowrap">{where}</td>'
        f'<td class="num{over}">{value}{_sub(interval)}</td>'
        f'<td class="num">{limit}{_sub(f"line {row.line}" if row.line else "")}</td><td>{text}</td></tr>'
    )


def _sub(text: str) -> str:
    return f'<span class="sub">{text}</span>' if text else ""


def change_rows(badge: Callable[[str, bool], Markup], rows: Iterable[Change]) -> Markup:
    """The body of a table of what changed between two commits; `badge` makes the mark of a verdict."""
    return _joined(_change(badge(row.verdict, False), row) for row in rows)


def _change(badge: Markup, row: Change) -> str:
    backend, case, what = _escaped((clean(row.backend), clean(row.case), metric(row.metric)))
    interval = f"{ratio(row.low)} … {ratio(row.high)}" if row.low else ""
    return (
        f'<tr><td>{badge}</td><th scope="row">{what}</th><td class="nowrap">{backend}</td><td>{case}</td>'
        f'<td class="num">{by_unit(row.base, row.unit)}</td><td class="num">{by_unit(row.head, row.unit)}</td>'
        f'<td class="num">{ratio(row.change)}{_sub(interval)}</td></tr>'
    )


def log_lines(lines: Iterable[LogLine]) -> Markup:
    """The items of a log, each with a link to itself."""
    found = list(lines)
    texts = _escaped(line.text for line in found)
    return _joined(
        f'<li id="log-{line.number}" data-row><a href="#log-{line.number}" tabindex="-1" '
        f'aria-label="Line {line.number}">{line.number}</a><span>{text}</span></li>'
        for line, text in zip(found, texts, strict=True)
    )


def _escaped(texts: Iterable[str]) -> list[str]:
    plain = [text.replace(_BETWEEN, "") if _BETWEEN in text else text for text in texts]
    return str(escape(_BETWEEN.join(plain))).split(_BETWEEN) if plain else []


def _joined(parts: Iterable[str]) -> Markup:
    return Markup("".join(parts))  # noqa: S704 (every text in them is escaped above)


FILTERS: dict[str, Callable[[Any], Markup]] = {
    "table_rows": table_rows,
    "slice_rows": slice_rows,
    "log_lines": log_lines,
}
