"""HTML of templates. Everything that is not written in a template itself is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from console.settings import ConsoleSettings
from stele.ids import encode_uuid
from stele.printable import printable, printable_lines

NOTHING: Final = "-"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Pages:
    """The templates of a console."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._environment = Environment(
            loader=PackageLoader("console"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            lines=_lines, moment=moment, size=size_text, count=count_text, ids=_ids, uuid=_uuid,
            raw_value=_raw_value,
        )  # fmt: skip
        self._environment.globals.update(
            address=address,
            form_token=settings.form_token,
            is_read_only=settings.is_read_only,
            has_reports=settings.reports is not None,
            bootstrap_servers=settings.bootstrap_servers,
        )

    def html(self, template: str, /, **values: Any) -> str:
        return self._environment.get_template(template).render(**values)


def address(path: str, **query: str | int | Sequence[str] | None) -> str:
    """A link within the console. Names stand in its query, where every character fits. A sequence
    stands there as often as it has values."""
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    encoded = urlencode(given, doseq=True)
    return f"{path}?{encoded}" if encoded else path


def moment(time_ms: int | None) -> str:
    """A time in UTC."""
    if time_ms is None or time_ms < 0:
        return NOTHING
    try:
        found = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer may write any number
        return f"{time_ms} ms"
    return found.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def size_text(size_bytes: float | None) -> str:
    """A size as people write it, for example 1.5 MiB."""
    if size_bytes is None or size_bytes < 0:
        return NOTHING
    for unit in _UNITS:
        if size_bytes < 1024 or unit == _UNITS[-1]:
            break
        size_bytes /= 1024
    number = f"{size_bytes:.0f}" if size_bytes >= 10 or unit == "B" else f"{size_bytes:.1f}"
    return f"{number} {unit}"


def count_text(number: int | None) -> str:
    return NOTHING if number is None else f"{number:,}"


def _visible(value: object) -> object:
    """Called for every expression: control characters would turn or hide what follows them."""
    if isinstance(value, Markup):
        return value
    return NOTHING if value is None else printable(str(value))


def _lines(text: str) -> Markup:
    """A text of several lines."""
    return escape(printable_lines(text))


def _raw_value(text: str) -> Markup:
    """The value of an input, which goes back as it came."""
    return escape(text)


def _ids(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or NOTHING


def _uuid(value: bytes) -> str:
    return encode_uuid(value)
