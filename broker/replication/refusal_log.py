"""A line in the log for what producers are refused, at most one a second of a kind."""

from __future__ import annotations

import logging
from typing import Final

from stele.errors import ApiError, ErrorCode
from stele.world import Clock

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
"""A producer that repeats its mistake as fast as it can must not fill the disk with our words."""

_LEVELS: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: logging.ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR: logging.ERROR,
    ErrorCode.CORRUPT_MESSAGE: logging.WARNING,
    ErrorCode.INVALID_RECORD: logging.WARNING,
    ErrorCode.INVALID_TIMESTAMP: logging.WARNING,
    ErrorCode.MESSAGE_TOO_LARGE: logging.WARNING,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: logging.WARNING,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: logging.WARNING,
}
"""Every other refusal is part of a cluster's life: a client answers it by itself."""


class RefusalLog:
    """Counts what it leaves out and says so in the next line."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s: dict[ErrorCode, float] = {}
        self._left_out: dict[ErrorCode, int] = {}

    def note(self, partition: object, error: ApiError) -> None:
        level = _LEVELS.get(error.code)
        if level is None:
            return
        now_s = self._clock.monotonic()
        if now_s - self._last_s.get(error.code, -INTERVAL_S) < INTERVAL_S:
            self._left_out[error.code] = self._left_out.get(error.code, 0) + 1
            return
        self._last_s[error.code] = now_s
        left_out = self._left_out.pop(error.code, 0)
        more = f" ({left_out} more of this kind since the last such line)" if left_out else ""
        logger.log(level, "%s: a batch is refused: %s%s", partition, error, more)
