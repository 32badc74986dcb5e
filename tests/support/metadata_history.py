"""The history of a metadata log that a controller's machine writes in a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metadata.explain.history import MetadataHistory
from metadata.records import encode
from metadata.topics import Topic
from tests.support.controller import Machine

STEP_MS = 1000


class Chronicle:
    """A machine whose decisions are taken into a history, one second apart."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.history = MetadataHistory()
        self.now_ms = 0
        self._take()

    def do(self, deed: Callable[[Machine], Any]) -> Any:
        """Let the machine decide once, and take the decision in."""
        answer = deed(self.machine)
        self._take()
        return answer

    def brokers(self, *ids: int, racks: dict[int, str] | None = None) -> None:
        for broker_id in ids:
            self.do(lambda machine, each=broker_id: machine.register(  # type: ignore[misc]
                each, rack=(racks or {}).get(each, "")
            ))  # fmt: skip
            self.do(lambda machine, each=broker_id: machine.heartbeat(each))  # type: ignore[misc]

    def topic(self, name: str) -> Topic:
        found = self.history.image.topic(name)
        assert found is not None
        return found

    def _take(self) -> None:
        records: Any = self.machine.last_records
        if records:
            self.now_ms += STEP_MS
            offset = self.machine.image.offset - len(records) + 1
            self.history.take(offset, 1, self.now_ms, [encode(record) for record in records])
        assert self.history.image == self.machine.image
