"""Kafka's rule for the names of topics."""

from __future__ import annotations

import re
from typing import Final

LENGTH_MAX: Final = 249
PATTERN: Final = r"[a-zA-Z0-9._-]+"
INTERNAL_PREFIX: Final = "__"
"""Topics of the cluster itself begin with it."""

_NAME = re.compile(PATTERN)


def fault_in(name: str) -> str | None:
    """What is wrong with a topic's name, in words. None: nothing is."""
    if not name or name in (".", ".."):
        return "it must not be empty, . or .."
    if len(name) > LENGTH_MAX:
        return f"it has {len(name)} characters, and at most {LENGTH_MAX} are allowed"
    if not _NAME.fullmatch(name):
        return "only ASCII letters, digits, ., _ and - are allowed"
    return None


def is_encodable(text: str) -> bool:
    """Whether a request can hold the text. A lone surrogate has no UTF-8."""
    return text.isascii() or _has_utf8(text)


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
