"""The reports of drills in a directory: what ``stele drill run`` has left in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REPORT_FILE: Final = "report.json"
PAGE_FILE: Final = "report.html"
_MOST_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DrillReport:
    """``name``: of its directory. ``failed``: the checks that do not hold, and what was seen."""

    name: str
    title: str
    began: str
    cluster: str
    seed: str
    is_green: bool
    control: str
    failed: tuple[tuple[str, str], ...]
    has_page: bool
    trouble: str = ""
    """Why the report cannot be read; the other fields are empty."""


def find_reports(directory: Path) -> list[DrillReport]:
    """The newest first. A report that cannot be read is in the list, and says why."""
    found = [_report(path) for path in sorted(directory.glob(f"*/{REPORT_FILE}"))]
    return sorted(found, key=lambda each: each.began, reverse=True)


def page_of(directory: Path, name: str) -> bytes | None:
    """The page with the timeline. None: no report has this name, or it has no page."""
    if name not in {path.parent.name for path in directory.glob(f"*/{PAGE_FILE}")}:
        return None
    path = directory / name / PAGE_FILE
    return path.read_bytes() if path.stat().st_size <= _MOST_BYTES else None


def _report(path: Path) -> DrillReport:
    name = path.parent.name
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
        return _parsed(path, json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        trouble = f"{REPORT_FILE} cannot be read: {error!r}"
        return DrillReport(name, "", "", "", "", False, "", (), has_page=False, trouble=trouble)


def _parsed(path: Path, told: dict[str, Any]) -> DrillReport:
    header = told["header"]
    return DrillReport(
        path.parent.name,
        str(header["title"]),
        str(header["began"]),
        str(header["cluster"]),
        str(header["seed"]),
        told["green"] is True,
        str(header["control"]),
        tuple((str(e["name"]), str(e["told"])) for e in told["checks"] if not e["holds"]),
        path.with_name(PAGE_FILE).exists(),
    )
