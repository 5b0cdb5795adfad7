"""Takes the README's pictures from a running service: `take_pictures.py --url http://127.0.0.1:8321`.

The service must have judged at least one pull request that failed; `make demo` leaves it so.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from find_chromium import ARGUMENTS, find_chromium
from PIL import Image
from playwright.sync_api import Browser, expect, sync_playwright

ROOT = Path(__file__).parents[2]
LARGEST_TOTAL = 300_000
COLOURS = 256
FREQUENT = 64


@dataclass(frozen=True)
class Shot:
    """One picture."""

    name: str
    path: str
    width: int = 1280
    height: int = 900
    scheme: str = "light"
    beginning_at: str = ""
    """Selector of the element at which the picture begins; the top of the page when empty."""


def shots(url: str) -> list[Shot]:
    """The pictures, of the newest failed pull request and, if there is one, the newest training that the service knows.

    Raises:
        LookupError: no pull request has failed.
    """
    failed = [entry["job_id"] for entry in _get(url, "/verdicts") if entry["verdict"] == "fail"]
    jobs = [_get(url, f"/jobs/{job_id}") for job_id in failed]
    job = next((job for job in jobs if job["kind"] == "pull_request"), None)
    if job is None:
        raise LookupError(f"{url} knows no failed pull request; run the demo first")
    compare = f"/projects/{job['project']}/compare?base={job['merge_base_sha'][:12]}&head={job['head_sha'][:12]}"
    trainings = [f"/training/{entry['name']}" for entry in _get(url, "/training")]
    return [
        *(Shot("training", path, height=1030, beginning_at=".plot") for path in trainings[:1]),
        Shot("overview-light", "/", height=1120),
        Shot("overview-dark", "/", height=1120, scheme="dark"),
        Shot("job-failed", f"/jobs/{job['id']}"),
        Shot("inputs", "/inputs", height=980, beginning_at="section.panel:has(.plot)"),
        Shot("compare", compare, height=580, beginning_at=".halves:has(#differences)"),
    ]


def take(browser: Browser, url: str, shot: Shot) -> bytes:
    """A picture of the page, once all its charts are drawn, as a WebP of few colours."""
    page = browser.new_page(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme=shot.scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    page.goto(url + shot.path)
    charts = page.locator("figure.chart").count()
    expect(page.locator(".plot[data-drawn]")).to_have_count(charts, timeout=30_000)
    if shot.beginning_at:
        page.locator(shot.beginning_at).first.evaluate("element => element.scrollIntoView()")
    picture = page.screenshot()
    page.close()
    return optimised(picture)


def optimised(picture: bytes) -> bytes:
    """The same in few colours, without loss beyond them; two thirds of the PNG's size.

    The most frequent are kept as they are, the others cover what is there: a series of few pixels keeps its own.
    """
    whole = Image.open(io.BytesIO(picture)).convert("RGB")
    frequent = sorted(whole.getcolors(whole.width * whole.height), reverse=True)[:FREQUENT]
    covering = whole.quantize(COLOURS - FREQUENT, method=Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in frequent for part in colour] + covering[: 3 * (COLOURS - FREQUENT)])
    few = whole.quantize(palette=palette, dither=Image.Dither.NONE)
    file = io.BytesIO()
    few.convert("RGB").save(file, "WEBP", lossless=True, quality=100, method=6)
    return file.getvalue()


def _get(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1{path}", timeout=30) as answer:
        return json.load(answer)


def main() -> int:
    """The script: exit code 0 when every picture is taken, 1 when one cannot be or they are too large together."""
    parser = argparse.ArgumentParser(description="Takes the README's pictures from a running service.")
    parser.add_argument("--url", default="http://127.0.0.1:8321", help="address of the service (default: the demo's)")
    parser.add_argument("--out", type=Path, default=ROOT / "dashboards" / "pictures", help="folder to write to")
    options = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print("no Chromium; `find_chromium.py --install` gets one", file=sys.stderr)
        return 1
    url, total = options.url.rstrip("/"), 0
    options.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        try:
            for shot in shots(url):
                picture = take(browser, url, shot)
                (options.out / f"{shot.name}.webp").write_bytes(picture)
                total += len(picture)
                print(f"{shot.name}.webp  {shot.width} × {shot.height}  {len(picture) / 1000:.0f} kB")
        except (LookupError, OSError) as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            browser.close()
    if total > LARGEST_TOTAL:
        print(f"{total} bytes together, more than {LARGEST_TOTAL}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
