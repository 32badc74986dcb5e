"""A member of a consumer group in a process of its own, so that a drill can kill it.

``python -m chaos.drills.member BOOTSTRAP GROUP TOPIC`` prints a line of JSON for each batch of
records that it has read, and another one for each commit that was acknowledged, until it is ended
by SIGTERM or its standard output is closed.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any, Final

from chaos.drills.child import Child
from chaos.drills.history import Committed, Read
from chaos.drills.recorder import Recorder
from chaos.drills.workload import name_of
from stele.aio import Consumer
from stele.errors import SteleError
from stele.real import RealClock

_SESSION_TIMEOUT_MS: Final = 6_000
_HEARTBEAT_MS: Final = 500
_POLL_MS: Final = 200
_AFTER_AN_ERROR_S: Final = 0.2


async def work(bootstrap: str, group: str, topic: str) -> None:
    """Read, print and commit until cancelled; then leave the group."""
    clock = RealClock()
    async with Consumer(
        bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=_SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=_HEARTBEAT_MS,
        on_wait=lambda _: None,
    ) as consumer:
        consumer.subscribe([topic])
        while True:
            try:
                records = await consumer.poll(timeout_ms=_POLL_MS)
                if not records:
                    continue
                rows = [(each.partition, each.offset, *name_of(each.value)) for each in records]
                _print({"read": rows, "at": clock.monotonic()})
                ends = {each.partition: each.offset + 1 for each in records}
                await consumer.commit({(topic, each): end for each, end in ends.items()})
                _print({"committed": list(ends.items()), "at": clock.monotonic()})
            except SteleError:
                # A commit of a generation that is over, a coordinator that moves: poll again.
                await asyncio.sleep(_AFTER_AN_ERROR_S)


def _print(line: object) -> None:
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


class MemberProcess:
    """One member. What it prints is taken down as events of the reader ``member-NUMBER``."""

    def __init__(self, number: int, recorder: Recorder) -> None:
        self.label = f"member-{number}"
        self._recorder = recorder
        self._child = Child("chaos.drills.member", self._take)

    async def start(self, bootstrap: str, group: str, topic: str) -> None:
        await self._child.start(bootstrap, group, topic)

    async def kill(self) -> None:
        """SIGKILL: it says nothing to its coordinator, but its connections end."""
        await self._child.kill()

    async def stop(self) -> None:
        """SIGTERM: it leaves the group."""
        await self._child.stop()

    def pause(self) -> None:
        self._child.pause()

    def _take(self, told: Any) -> None:
        at_ms = self._recorder.at_ms(told["at"])
        for partition, offset, producer, number in told.get("read", ()):
            self._recorder.add(Read(at_ms, self.label, partition, offset, producer, number))
        for partition, offset in told.get("committed", ()):
            self._recorder.add(Committed(at_ms, self.label, partition, offset))


def main() -> None:
    bootstrap, group, topic = sys.argv[1:]
    loop = asyncio.new_event_loop()
    working = loop.create_task(work(bootstrap, group, topic))
    loop.add_signal_handler(signal.SIGTERM, working.cancel)
    try:
        loop.run_until_complete(working)
    except (asyncio.CancelledError, BrokenPipeError):
        pass


if __name__ == "__main__":
    main()
