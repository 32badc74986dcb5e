"""The page of what each API needs agrees with the tables that the tests walk through."""

from __future__ import annotations

from pathlib import Path

from tests.support.permissions_page import page

PAGE = Path(__file__).resolve().parents[3] / "docs/permissions.md"


def test_the_page_agrees_with_the_tables() -> None:
    assert PAGE.read_text() == page(), "run scripts/permissions-page"
