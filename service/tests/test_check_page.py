"""The check run's page: what a reviewer sees first, what hostile text does to it, and that GitHub's limits hold."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from github_server import OPERATIONS, check_body
from markdown_it import MarkdownIt

from gprojci_service.gate.check_page import Case, output
from gprojci_service.gate.decision import decide, without_report
from gprojci_service.gate.finding import Decision, Finding
from gprojci_service.github.markdown import code, fence, literal, prose, table
from gprojci_service.models import Job, Project
from gprojci_suite.contract.errors import Problem
from gprojci_suite.contract.manifest import GateSettings, parse
from gprojci_suite.contract.report import Report

CREATE = OPERATIONS["/repos/{owner}/{repo}/check-runs"]["post"]["requestBody"]
MANIFEST = """
[backends.gproj]
entry = "gproj:attention"
[accuracy]
inputs = ["late-keybias"]
[gate]
dq_error_ceiling = 0.0035
dq_error_ratio = 1.05
kernel_time_increase = 0.1
"""
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "@octocat fixes #1 and GH-2",
    "[a](https://evil.example) ![b](c) www.evil.example",
    "a|b\\|c\n| forged | row |\n# heading",
    "`code``` \x1b[31mred\u202e",
    "**bold** _it_ ~~x~~ &lt; $x$ ^1",
]

OUR_TAGS = {"p", "strong", "a", "code", "pre", "br", "table", "thead", "tbody", "tr", "th", "td", "h3", "ul", "li"}


def case_of(report, **changes):
    """A job about to be told of."""
    job = Job(id=12, head_sha="a" * 40, merge_base_sha="b" * 40, hardware="cpu", detail=changes.pop("detail", None))
    project = Project(name="o/r", html_url="https://github.com/o/r")
    read = {"report": None if report is None else Report.from_json(report), "read_from": "base" if report else ""}
    return Case(job=job, project=project, public_url="https://ci.example.com", **{**read, **changes})


def shown(made, case):
    """The output as it is sent, checked against GitHub's description."""
    sent = output(made, case).to_json()
    body = {"name": "x", "head_sha": "a" * 40, "status": "completed", "conclusion": "failure", "output": sent}
    check_body(CREATE, body)
    for text in (sent["summary"], sent.get("text", "")):
        assert len(text.encode()) <= 65535
    return sent


def judged(report):
    return decide(parse(MANIFEST, device="cpu").gate, Report.from_json(report), ("gproj",))


def row(sent, check):
    """Cells of the row of a check."""
    (line,) = (line for line in sent["summary"].splitlines() if f"| {check} |" in line)
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_memory_and_counts_have_their_units(make_report):
    report = make_report()
    for measurement, peak in zip(report["throughput"]["measurements"], (3 * 2**30, 2 * 2**30), strict=True):
        measurement["peak_memory_bytes"] = peak
    anchor = {**report["throughput"]["measurements"][0], "backend": "sdpa-math", "revision": "ruler"}
    report["throughput"]["measurements"].append(anchor)
    kernel = {"backend": "gproj", "case": anchor["case"], "pass": "backward", "kernel": "bwd", "launches": 1}
    kernel |= {"seconds": 0.001, "registers_per_thread": 255, "shared_memory_bytes": 0, "grid": [], "block": []}
    spills = {"head": 36, "base": 4}
    report["throughput"]["kernels"] = [{**kernel, "revision": key, "spills": value} for key, value in spills.items()]
    limits = {"peak_memory_increase": 0.1, "peak_memory_overhead_ceiling": 0.1, "spilled_registers_ceiling": 8}
    sent = shown(decide(GateSettings(limits=limits), Report.from_json(report), ("gproj",)), case_of(report))
    assert row(sent, "Peak memory over the base's")[4:8] == ["2 GiB", "3 GiB", "+50%", "+10%"]
    assert row(sent, "Peak memory over the anchor's")[4:8] == ["3 GiB<br>(anchor)", "3 GiB", "+0%", "+10%"]
    assert row(sent, "Spilled registers")[4:8] == ["4", "36", "9.00×", "8"]


def test_the_first_line_is_the_verdict_and_the_table_has_base_head_change_and_limit(make_report):
    report = make_report(dq=0.439, base_dq=0.002, time=(0.97, 1.03))
    report["throughput"]["measurements"][0]["median_seconds"] = 0.101
    made = judged(report)
    sent = shown(made, case_of(report))
    assert sent["title"] == f"Fails: {made.summary}"
    assert sent["summary"].splitlines()[0].startswith("**❌ Fails: gproj: dQ error on late-keybias is 220× the base's")
    line = "[line 7](https://github.com/o/r/blob/" + "b" * 40 + "/gprojci.toml#L7)"
    where = ["`gproj`", "`late-keybias`"]
    assert row(sent, "dQ error, median") == [
        "❌ fail",
        "dQ error, median",
        *where,
        "0.2%",
        "43.9%",
        "220×",
        "0.35%",
        line,
    ]
    time = row(sent, "Time over the base's")
    assert time[4:8] == ["100 ms", "101 ms", "+0%<br>−3% … +3%", "+10%"]
    assert (
        "[Compare with base](https://ci.example.com/projects/o/r/compare?base=bbbbbbbbbbbb&head=aaaaaaaaaaaa)"
        in sent["summary"]
    )
    assert "| dQ | `late-keybias` | `L1.b0.h0` | `gproj` | 0.2% | 43.9% |" in sent["text"]
    assert "torch 2.13.0" in sent["text"]
    assert "f" * 40 in sent["text"]
    assert "```sh\ngprojci-suite bench\n```" in sent["text"]


def test_thousands_of_findings_are_cut_with_a_sentence(make_report):
    finding = Finding("dq_error_ceiling", "gproj", "fail", "too large", case="an-input" * 8, value=1.0, limit=0.5)
    report = make_report()
    report["repro"] = "run " * 9000
    sent = shown(Decision("fail", "too large", (finding,) * 5000), case_of(report))
    last = sent["summary"].splitlines()[-1]
    assert re.fullmatch(r"\d{4} more of 5000 do not fit here: all are on the \[job's page\]\(\S+/jobs/12\)\.", last)


def test_a_build_that_failed_shows_the_end_of_its_log_as_it_is():
    detail = "error: no\n" + "x" * 9000 + "\n```\n</details> @octocat\n````\nend"
    sent = shown(without_report("build_error", detail), case_of(None, detail=detail))
    assert "`````\n…xxx" in sent["summary"]
    assert sent["summary"].endswith("````\nend\n`````")


def test_a_broken_manifest_is_annotated_on_its_lines():
    problems = (*(Problem(f"gate.x{number}: unknown key", number, 3) for number in range(1, 70)), Problem("all"))
    sent = shown(without_report("build_error", "line 1: …"), case_of(None, problems=problems))
    assert len(sent["annotations"]) == 50
    first = sent["annotations"][0]
    assert (first["path"], first["start_line"], first["start_column"]) == ("gprojci.toml", 1, 3)
    assert first["message"] == "gate.x1: unknown key"
    assert "| 69 | gate.x69: unknown key |" in sent["summary"]


def test_an_error_says_what_to_do_and_neutral_that_it_does_not_block(make_report):
    assert "`gprojci job rerun 12`" in shown(without_report("lost_worker", "gone"), case_of(None))["summary"]
    report = make_report(time=(0.9, 1.3))
    sent = shown(judged(report), case_of(report))
    assert sent["title"].startswith("Cannot tell: ")
    assert "does not block the merge" in sent["summary"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_no_markup(text):
    for line in (literal(text), code(text), prose(text)):
        assert "\n" not in line
        assert "\x1b" not in line
        assert "\u202e" not in line
    shown_in_table = table(("a",), [(literal(text),), (code(text),), (prose(text),)], 10_000, "")
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in shown_in_table] == [2] * 5
    plain = literal(text)
    assert not re.search(r"(?<!\\)[<\[!`*_#&|]", plain)
    assert not re.search(r"@\w|#\d|GH-\d|://|www\.\w", plain)
    assert code(text).count("`") == 2
    assert prose(text.replace("`", "")) == literal(text.replace("`", ""))
    assert prose(f"{text.replace('`', '')} `a_b|c`").endswith(" `a_b¦c`")
    marks, *inside, end = fence(text)
    assert marks == end
    assert all(marks not in line for line in inside)


def rendered(sent):
    """The page as HTML, as a renderer of GitHub's Markdown makes it."""
    render = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render
    return render(sent["summary"]) + render(sent.get("text", ""))


def test_hostile_names_stay_in_their_cells(make_report):
    report = make_report()
    for text in HOSTILE:
        report["environment"]["device_name"] = report["repro"] = report["inputs"][0]["input"] = text
        for entry in (*report["accuracy"]["slices"], *report["accuracy"]["summary"]):
            entry["input"] = text
        name = Finding("dq_error_ceiling", text, "fail", text, case=text, slice=text, value=1.0, limit=0.5)
        words = Finding("inputs", text, "fail", text, case=text)
        sent = shown(Decision("fail", text, (name, words, replace(name, backend="gproj"))), case_of(report))
        rows = [line for line in sent["summary"].splitlines() if line.startswith("| ")]
        assert [len(re.findall(r"(?<!\\)\|", line)) for line in rows] == [10] * 4
        page = rendered(sent)
        assert set(re.findall(r"<(\w+)", page)) <= OUR_TAGS
        links = re.findall(r'href="([^"]+)"', page)
        assert all(link.startswith(("https://ci.example.com/", "https://github.com/o/r/blob/")) for link in links)
        assert page.count("<table>") == 2
        for build in (without_report("build_error", text), without_report("lost_worker", text)):
            page = rendered(shown(build, case_of(None, detail=text, problems=(Problem(text, 1, 1),))))
            assert set(re.findall(r"<(\w+)", page)) <= OUR_TAGS
