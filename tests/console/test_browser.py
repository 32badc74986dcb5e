"""The console's pages in a browser: Chromium without a window, on a cluster of processes.

A page is in order if its scripts report no error and if it is as wide as the window: what is wider
scrolls within itself. ``CONSOLE_PICTURES`` names a directory for a picture of each page.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stele import Admin, NewTopic, OffsetAndMetadata, Producer
from stele.sync import Consumer
from tests.support.console import leave_report

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = {"wide": (1280, 900), "phone": (390, 844)}
ADDRESSES = (
    "/",
    "/topics",
    "/topics/new",
    "/topic?name=looked-at",
    "/messages?topic=looked-at",
    "/produce?topic=looked-at",
    "/groups",
    "/group?group=lookers",
    "/transactions",
    "/connections",
    "/access",
    "/quotas",
    "/losses?node=101",
    "/drills",
)

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def filled(bootstrap: str) -> str:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("looked-at", 3, 1)])
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send("looked-at", b'{"number": %d, "long": "%s"}' % (number, b"x" * 300))
        producer.send("looked-at", b"\xff\x00<script>alert(1)</script>", b"k", partition=0).result()
    with Consumer(bootstrap, group_id="lookers") as consumer:
        consumer.assign([("looked-at", 0)])
        consumer.commit({("looked-at", 0): OffsetAndMetadata(1)})
    return bootstrap


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a drill, with styles and a timeline as drills make them, and a script."""
    directory = tmp_path_factory.mktemp("drill-results")
    leave_report(directory, "leader-killed", "2026-11-28 10:00:00", [("nothing is lost", True)])
    (directory / "leader-killed" / "report.html").write_text(
        "<!doctype html><style>h1 { color: rgb(1, 2, 3) }</style><h1>The timeline</h1>"
        '<svg viewBox="0 0 1000 100"><rect x="0" y="0" width="9" height="9" fill="#3f7fbf"/></svg>'
        "<script>document.body.textContent = 'a script has run'</script>"
    )
    return directory


@pytest.fixture(scope="module")
def address(filled: str, reports: Path) -> Iterator[str]:
    """Where the console is, with the key to it."""
    command = [sys.executable, "-m", "cli.main", "console", "-b", filled, "--port", "0"]
    command += ["--reports", str(reports)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        yield next(line.strip() for line in console.stdout if "http://" in line)
        console.terminate()


@pytest.fixture(params=list(WIDTHS))
def window(request: pytest.FixtureRequest, address: str) -> Iterator[BrowserContext]:
    """Wide windows are light, and narrow ones dark."""
    from playwright.sync_api import sync_playwright

    width, height = WIDTHS[request.param]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="light" if request.param == "wide" else "dark",
            base_url=address.partition("/?")[0],
            locale="en-US",
        )
        context.set_default_timeout(60_000)
        context.new_page().goto(address)  # takes the key
        yield context
        browser.close()


def opened(window: BrowserContext, path: str) -> tuple[Page, list[str]]:
    """A page, and what its scripts complain of from now on."""
    page = window.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    answer = page.goto(path)
    assert answer is not None
    assert answer.status == 200, path
    return page, complaints


def test_every_page_fits_and_its_scripts_run(
    window: BrowserContext, request: pytest.FixtureRequest
) -> None:
    for path in ADDRESSES:
        page, complaints = opened(window, path)
        page.wait_for_load_state("load")
        if pictures := os.environ.get("CONSOLE_PICTURES"):
            name = re.sub(r"\W+", "-", path).strip("-") or "cluster"
            page.screenshot(path=Path(pictures) / f"{name}-{request.node.callspec.id}.png")
        wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert (wider, complaints) == (0, []), path
        page.close()


def test_topics_are_found_while_one_types(window: BrowserContext) -> None:
    page, complaints = opened(window, "/topics")
    page.get_by_label("Name contains").press_sequentially("no-such")
    page.get_by_text("There is no such topic").wait_for()
    page.get_by_label("Name contains").fill("looked")
    page.get_by_role("link", name="looked-at").wait_for()
    assert complaints == []


def test_nodes_are_switched_off_to_see_what_would_be_lost(window: BrowserContext) -> None:
    page, complaints = opened(window, "/losses")
    page.get_by_text("No node is switched off.").wait_for()
    page.get_by_label("broker 101").check()
    page.get_by_text("3 of 3 controllers are left, and go on.").wait_for()
    for controller in ("controller 1", "controller 2"):
        page.get_by_label(controller, exact=True).check()
    page.get_by_text("1 of 3 controllers are left: no metadata can change").wait_for()
    page.get_by_label("rack-102", exact=True).check()
    page.get_by_text("Without 1, 2, 101, 102 the cluster loses more than copies.").wait_for()
    page.reload()  # the address has the choice
    page.get_by_text("Without 1, 2, 101, 102 the cluster loses more than copies.").wait_for()
    assert complaints == []


def test_the_timeline_of_a_drill_has_its_styles_and_runs_no_script(window: BrowserContext) -> None:
    page, _ = opened(window, "/drills")
    page.get_by_role("link", name="leader-killed").click()
    heading = page.get_by_role("heading", name="The timeline")
    heading.wait_for()
    assert heading.evaluate("each => getComputedStyle(each).color") == "rgb(1, 2, 3)"
    assert "a script has run" not in page.content().partition("<script>")[0]


def test_new_records_appear_while_they_are_followed(window: BrowserContext, filled: str) -> None:
    page, complaints = opened(window, "/messages?topic=looked-at")
    page.get_by_role("button", name="Follow new records").click()
    page.get_by_text("waiting for new records").wait_for()
    with Producer(filled) as producer:
        producer.send("looked-at", b"it is <b>new</b>").result()
    page.get_by_text("it is <b>new</b>").first.wait_for()
    assert complaints == []


def test_the_first_key_leads_to_the_content(window: BrowserContext) -> None:
    page, _ = opened(window, "/topics")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "MAIN"
