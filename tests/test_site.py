"""docs/ makes a site: every page is in it, and every link leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_pages_make_a_site(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert {path.parent.name for path in tmp_path.glob("*/index.html")} >= pages
