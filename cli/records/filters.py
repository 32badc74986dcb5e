"""``--key`` and ``--header``: which records ``stele consume`` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cli.output import UsageError

if TYPE_CHECKING:
    from stele.records import ConsumerRecord

Accepts = Callable[["ConsumerRecord"], bool]


def record_filter(key: str | None, headers: Sequence[str]) -> Accepts | None:
    """None: every record. Raises UsageError for a header without a name."""
    wanted_key = None if key is None else key.encode()
    wanted = [_header(each) for each in headers]
    if wanted_key is None and not wanted:
        return None

    def accepts(record: ConsumerRecord) -> bool:
        return (wanted_key is None or record.key == wanted_key) and all(
            any(name == n and (value is None or value == v) for n, v in record.headers)
            for name, value in wanted
        )

    return accepts


def _header(text: str) -> tuple[str, bytes | None]:
    """Name and value; without a value: whatever it is."""
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"--header {text!r} has no name: give NAME or NAME=VALUE")
    return name, value.encode() if equals else None
