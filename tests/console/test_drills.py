"""The reports of drills in the console: a list, and the pages that the drills have made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.console import FakeClients, browser, console_settings, leave_report

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    directory = tmp_path / "drill-results"
    directory.mkdir()
    leave_report(directory, "leader-killed", "2026-11-28 10:00:00", [("nothing is lost", True)])
    failed = [("nothing is lost", False), ("the drill came to its end", True)]
    leave_report(directory, "disk-full", "2026-11-28 11:00:00", failed, title=SCRIPT)
    (directory / "cut").mkdir()
    (directory / "cut" / "report.json").write_text('{"header": {')
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "report.html").write_text("not for the console")
    return directory


async def test_reports_are_listed_the_newest_first(reports: Path) -> None:
    settings = console_settings(reports=reports)
    async with browser(settings, FakeClients(settings, None)) as console:
        told = await console.text("/drills")
        assert told.index("disk-full") < told.index("leader-killed") < told.index("cut")
        assert "red 2026-11-28 11:00:00 process 7 nothing is lost: seen" in told
        assert "green 2026-11-28 10:00:00 process 7 none" in told
        assert "report.json cannot be read: JSONDecodeError" in told
        page = await console.get("/drills")
        assert SCRIPT not in page
        assert 'href="/drills" aria-current="page"' in page


async def test_the_page_of_a_drill_runs_nothing(reports: Path) -> None:
    settings = console_settings(reports=reports)
    async with browser(settings, FakeClients(settings, None)) as console:
        answer = await console.http.get("/drill?name=leader-killed")
        assert answer.text == "<h1>The timeline of leader-killed</h1>"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("sandbox; default-src 'none'; style-src 'unsafe-inline';")
        assert "script-src" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        listed = await console.http.get("/drills")
        assert "sandbox" not in listed.headers["content-security-policy"]


@pytest.mark.parametrize(
    "name", ["../outside", "cut", "other", "", "leader-killed/../leader-killed"]
)
async def test_only_reports_of_the_directory_are_shown(reports: Path, name: str) -> None:
    settings = console_settings(reports=reports)
    async with browser(settings, FakeClients(settings, None)) as console:
        answer = await console.http.get("/drill", params={"name": name})
        assert answer.status_code == (404 if name else 400)
        assert "not for the console" not in answer.text


async def test_without_the_option_there_are_no_reports() -> None:
    settings = console_settings()
    async with browser(settings, FakeClients(settings, None)) as console:
        assert "without --reports" in await console.text("/drills", status=404)
        assert "There is no such report" in await console.text("/drill?name=x", status=404)
