"""The workers of a share group, as a drill has them: started, killed, heard."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Literal

from chaos.drills.child import Child
from chaos.drills.history import Delivered, Settled
from chaos.drills.recorder import Recorder
from stele.admin.descriptions import ConfigResource
from stele.aio import Admin

WORKERS: Final = 10
How = Literal["careful", "hasty"]


class Crew:
    """The workers have numbers from 1 on. A worker that was killed is followed by another process
    with its number."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, recorder: Recorder, how: How
    ) -> None:
        self._arguments = bootstrap, group, topic, how
        self._group = group
        self._topic = topic
        self._recorder = recorder
        self._children = {
            number: Child("chaos.drills.queue.worker", partial(self._take, number))
            for number in range(1, WORKERS + 1)
        }
        self.deliveries = 0

    async def start(self, admin: Admin) -> None:
        """The group begins with the first record."""
        earliest = {"share.auto.offset.reset": "earliest"}
        await admin.alter_configs({ConfigResource.group(self._group): earliest})
        for number in self._children:
            await self.start_worker(number)

    async def start_worker(self, number: int) -> None:
        await self._children[number].start(*self._arguments)

    async def kill_worker(self, number: int) -> None:
        """SIGKILL: it says nothing, but its connections end."""
        await self._children[number].kill()

    async def stop(self) -> None:
        for child in self._children.values():
            await child.stop()

    async def is_drained(self, admin: Admin) -> bool:
        """Whether every record of the topic is done."""
        offsets = await admin.list_share_group_offsets(self._group)
        return bool(offsets) and all(each.lag == 0 for each in offsets.values())

    def _take(self, number: int, told: Any) -> None:
        at_ms = self._recorder.at_ms(told["at"])
        worker = f"worker-{number}"
        if "got" in told:
            partition, offset, producer, record, count = told["got"]
            asked_ms = self._recorder.at_ms(told["asked"])
            self.deliveries += 1
            self._recorder.add(
                Delivered(at_ms, worker, partition, offset, producer, record, count, asked_ms)
            )
        if "said" in told:
            partition, offset, outcome = told["said"]
            self._recorder.add(Settled(at_ms, worker, partition, offset, outcome))
