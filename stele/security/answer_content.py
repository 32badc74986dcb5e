"""The content of an answer over HTTP, bounded in size and in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

MAX_BYTES: Final = 1024 * 1024
"""The largest content that is read."""

_PART_BYTES: Final = 64 * 1024


class TooLongError(OSError):
    """There is more than ``MAX_BYTES``."""


def content_of(answer: Any, timeout_s: float, monotonic: Callable[[], float]) -> bytes:
    """All that an opened URL has. Raises OSError, also if it ends too early.

    The timeout of a socket begins anew with each byte. A server that sends one now and then would
    hold the thread for days.
    """
    deadline_s = monotonic() + timeout_s
    content = bytearray()
    left: int | None = getattr(answer, "length", None)  # of a server that has said how much it is
    while left != 0:
        some = answer.read1(_PART_BYTES if left is None else min(left, _PART_BYTES))
        if not some:
            break
        content += some
        left = None if left is None else left - len(some)
        if len(content) > MAX_BYTES:
            raise TooLongError(f"it has more than {MAX_BYTES} bytes")
        if monotonic() >= deadline_s:
            raise OSError(f"it did not come whole within {timeout_s:g} s")
    if left:
        raise OSError(f"it ends {left} bytes too early")
    return bytes(content)
