"""Takes the picture of a check run as GitHub shows it, from what a service has told GitHub of a failed pull request.

`take_check_picture.py --database .demo/gprojci.sqlite`. GitHub's own rendering needs GitHub: markdown-it renders it
here, under a small style sheet in the manner of GitHub's.
"""

from __future__ import annotations

import argparse
import html
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

from find_chromium import ARGUMENTS, find_chromium
from markdown_it import MarkdownIt
from playwright.sync_api import sync_playwright
from take_pictures import ROOT, optimised

LARGEST = 100_000
NEWEST = """
SELECT github_report.payload FROM github_report JOIN job ON job.id = github_report.job_id
WHERE github_report.kind = 'check_run' AND github_report.phase = 'decided' AND job.kind = 'pull_request'
ORDER BY github_report.id DESC
"""
# As pictures, as GitHub shows them too: not every machine has a font with these signs.
SIGNS = {
    "✅": ("#1a7f37", "M4.5 8.5l2.5 2.5 4.5-5"),
    "❌": ("#d1242f", "M5 5l6 6M11 5l-6 6"),
    "⚪": ("#8c959f", "M5 8h6"),
    "⚠️": ("#9a6700", "M8 4v5M8 11v1"),
}
STYLE = """
body { margin: 0; font: 14px/1.5 -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; color: #1f2328 }
header { padding: 12px 24px; background: #f6f8fa; border-bottom: 1px solid #d1d9e0; font-weight: 600 }
header small { display: block; font-weight: 400; color: #59636e }
main { padding: 8px 24px 16px }
a { color: #0969da; text-decoration: none }
code { padding: .2em .4em; font: 85% ui-monospace, "DejaVu Sans Mono", monospace; background: #818b981f;
  border-radius: 6px; white-space: nowrap }
pre { padding: 12px; background: #f6f8fa; border-radius: 6px; overflow: auto } pre code { padding: 0; background: none }
table { border-collapse: collapse; display: block; overflow: auto }
th, td { padding: 6px 10px; border: 1px solid #d1d9e0; text-align: left; vertical-align: top }
tr:nth-child(2n) { background: #f6f8fa }
svg { vertical-align: -3px }
th, td { white-space: nowrap }
h3 { margin: 20px 0 8px; font-size: 1.2em }
"""


def newest_failure(database: Path) -> dict[str, Any]:
    """The body of the newest check run that told a pull request of its failure.

    Raises:
        LookupError: there is none.
    """
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        found = [json.loads(payload) for (payload,) in connection.execute(NEWEST)]
    failed = [payload for payload in found if payload.get("conclusion") == "failure"]
    if not failed:
        raise LookupError(f"{database} knows no failed pull request; run the demo first")
    return dict(failed[0])


def page(check_run: dict[str, Any]) -> str:
    """The check run as a document."""
    render = MarkdownIt("commonmark", {"html": True}).enable("table").render
    output = check_run["output"]
    body = render(output["summary"]) + render(output.get("text", ""))
    for sign, (colour, lines) in SIGNS.items():
        picture = (
            f'<svg width=16 height=16 viewBox="0 0 16 16" fill=none stroke-width=2 stroke=white>'
            f'<circle cx=8 cy=8 r=8 fill="{colour}" stroke=none /><path d="{lines}" /></svg>'
        )
        body = body.replace(sign, picture)
    head = f"{html.escape(output['title'])}<small>{html.escape(check_run['name'])}</small>"
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><header>{head}</header><main>{body}</main>"


def main() -> int:
    """The script: exit code 0 when the picture is taken, 1 when it cannot be or is too large."""
    parser = argparse.ArgumentParser(description="Takes the picture of a check run.")
    parser.add_argument("--database", type=Path, default=ROOT / ".demo" / "gprojci.sqlite", help="default: the demo's")
    parser.add_argument("--out", type=Path, default=ROOT / "dashboards" / "pictures", help="folder to write to")
    parser.add_argument("--width", type=int, default=1180)
    parser.add_argument("--height", type=int, default=900)
    options = parser.parse_args()
    chromium = find_chromium()
    try:
        if chromium is None:
            raise LookupError("no Chromium; `find_chromium.py --install` gets one")
        document = page(newest_failure(options.database))
    except (LookupError, sqlite3.Error) as error:
        print(error, file=sys.stderr)
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        view = browser.new_page(viewport={"width": options.width, "height": options.height})
        view.set_content(document)
        picture = optimised(view.screenshot())
        browser.close()
    (options.out / "check-run.webp").write_bytes(picture)
    print(f"check-run.webp  {options.width} × {options.height}  {len(picture) / 1000:.0f} kB")
    return 0 if len(picture) <= LARGEST else 1


if __name__ == "__main__":
    sys.exit(main())
