"""Forms that browsers send, and the queries of links, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

MOST_BYTES: Final = 4_000_000
MOST_FIELDS: Final = 1_000


class FormError(Exception):
    """What a person has written cannot be used. ``str()`` is one sentence that says why."""


class Fields:
    """The fields of a form or of a link. A field that is not there is empty."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    @classmethod
    async def sent_with(cls, request: Request) -> Fields:
        """Raises FormError."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise FormError(f"the form has more than {MOST_BYTES:,} bytes")
        try:
            pairs = parse_qsl(
                body.decode("ascii"),
                keep_blank_values=True,
                max_num_fields=MOST_FIELDS,
                errors="strict",
            )
        except ValueError:
            raise FormError("the form cannot be read: it must be URL-encoded UTF-8") from None
        return cls(dict(pairs))

    @classmethod
    def of_link(cls, request: Request) -> Fields:
        return cls(dict(request.query_params))

    def text(self, name: str) -> str:
        """Without the space around it."""
        return self._values.get(name, "").strip()

    def raw(self, name: str) -> str:
        """As it was written. Browsers end lines with CR LF, and the person meant LF."""
        return self._values.get(name, "").replace("\r\n", "\n")

    def needed(self, name: str, label: str) -> str:
        """Raises FormError."""
        found = self.text(name)
        if not found:
            raise FormError(f"{label} is missing")
        return found

    def name(self, name: str, label: str) -> str:
        """The name of something that exists, as it is: a group may be called " a". Raises
        FormError."""
        found = self.raw(name)
        if not found:
            raise FormError(f"{label} is missing")
        return found

    def has(self, name: str) -> bool:
        return bool(self._values.get(name))

    def number(self, name: str, label: str, default: int | None = None) -> int:
        """Raises FormError for what is no whole number, and for nothing if there is no default."""
        found = self.text(name)
        if not found and default is not None:
            return default
        try:
            number = int(found)
        except ValueError:
            raise FormError(f"{label} {found!r} is no whole number") from None
        if not -(2**63) <= number < 2**63:
            raise FormError(f"{label} {found} is out of range")
        return number

    def page(self) -> int:
        """The number of a page of a list; anything else is the first."""
        found = self.text("page")
        return int(found) if found.isascii() and found.isdecimal() and len(found) < 10 else 1

    def time_ms(self, name: str, label: str) -> int:
        """ISO 8601; without an offset it is UTC. Raises FormError."""
        found = self.needed(name, label)
        try:
            parsed = datetime.fromisoformat(found)
        except ValueError:
            raise FormError(
                f"{label} {found!r} is no time: write it as 2026-01-31T12:00, in UTC"
            ) from None
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        return round(parsed.timestamp() * 1000)
