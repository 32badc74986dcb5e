"""The logs with records that no sync covers yet, as their flush is relaxed (``flush.messages``)."""

from __future__ import annotations

from stele.world import Clock
from storage.log import PartitionLog


class UnflushedLogs:
    """Asks for the sync of a log when ``flush.ms`` is over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s: dict[PartitionLog, float] = {}  # monotonic time of the oldest write

    def begin(self, log: PartitionLog) -> None:
        """The log has unsynced bytes for which it requests no sync yet."""
        self._since_s[log] = self._clock.monotonic()

    def ask(self) -> None:
        """Let the next group cover the logs whose oldest unsynced bytes are ``flush.ms`` old. The
        cost grows with the number of logs that have unsynced bytes."""
        now_s = self._clock.monotonic()
        for log, since_s in list(self._since_s.items()):
            if log.is_flushed or log.offline is not None:
                del self._since_s[log]
            elif (now_s - since_s) * 1000 >= log.config.flush_ms:
                del self._since_s[log]
                log.ask_for_sync()
