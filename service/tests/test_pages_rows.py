"""The rows that are written without a template: escaped, linked, marked."""

from __future__ import annotations

from gprojci_service.pages import rows
from gprojci_service.pages.schemas import Cell, LogLine, SliceRow, Table

NASTY = '<b title="x">&\0'
SAFE = "&lt;b title=&#34;x&#34;&gt;&amp;"


def test_a_table_keeps_its_cells_and_its_links() -> None:
    made = rows.table_rows(Table("x", ("a", "b"), ((NASTY, "1"), ("c", NASTY)), ("/jobs/1", "")))
    assert made == (
        f'<tr data-row><th scope="row"><a href="/jobs/1">{SAFE}</a></th><td class="num">1</td></tr>'
        f'<tr data-row><th scope="row">c</th><td class="num">{SAFE}</td></tr>'
    )
    assert rows.table_rows(Table("x", ("a",), (("c",),))) == '<tr data-row><th scope="row">c</th></tr>'


def test_words_stand_left_and_numbers_right() -> None:
    table = Table("x", ("a", "b", "c", "d"), (("r", "same bits", "–", "2%"), ("s", "–", "–", "not possible")))
    assert table.wordy == (True, True, False, False)
    assert '<td>same bits</td><td class="num">–</td><td class="num">2%</td>' in rows.table_rows(table)


def test_slices_say_what_vanishes_and_what_is_over() -> None:
    made = rows.slice_rows([SliceRow(NASTY, True, (Cell("1%", True, NASTY), Cell("2%")))])
    assert f'class="nowrap">{SAFE} <span class="tag"' in made
    assert f'<td class="num over" title="{SAFE}">1%</td><td class="num">2%</td>' in made


def test_lines_of_a_log_are_escaped_one_by_one() -> None:
    made = rows.log_lines([LogLine(7, NASTY), LogLine(8, "b")])
    assert made.count("<li ") == 2
    assert f"<span>{SAFE}</span></li>" in made
    assert 'id="log-8"' in made
    assert rows.log_lines([]) == ""
