"""Administration as a part of a run's work: topics come and go, configs change, leaders move."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from metadata.image import ConfigResource as ImageResource
from metadata.image import MetadataImage
from stele.admin import Admin, ConfigResource, NewTopic
from stele.errors import OutcomeUnknownError, SteleError

_CONFIG = "max.message.bytes"


@dataclass(slots=True)
class _Asked:
    """What a topic's config may be: what was said last, or what nobody knows the outcome of.

    A change without an answer may take effect at any later time, also after the success of one
    that was asked for later: its request can lie in a network that is cut.
    """

    said: str | None = None  # None: never set
    unknown: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Administration:
    """``run``, then ``wrong`` of the metadata of the end: what was answered with success holds."""

    admin: Admin
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    # What the cluster said last of each topic: there, gone, or (None) nobody knows.
    topics: dict[str, bool | None] = field(default_factory=dict)
    configs: dict[str, _Asked] = field(default_factory=dict)
    _number: int = 0

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        acts = [self._create, self._create, self._delete, self._configure, self._elect]
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
            try:
                await self.rng.choice(acts)()
            except SteleError:  # refused, or nobody knows what came of it
                self.counts["administration failed"] += 1
        await self.admin.close()

    def wrong(self, image: MetadataImage) -> Iterator[str]:
        for name, there in self.topics.items():
            if there is not None and there != (image.topic(name) is not None):
                said, found = ("created", "is not there") if there else ("deleted", "is there")
                yield f"topic {name} was {said} and {found}"
        for name, asked in self.configs.items():
            present = image.config(ImageResource.topic(name)).get(_CONFIG)
            if self.topics[name] and present != asked.said and present not in asked.unknown:
                yield f"{_CONFIG} of {name} was set to {asked.said} and is {present}"

    # ----------------------------------------------------------------------------------- acts

    def _present(self) -> list[str]:
        return [name for name, there in self.topics.items() if there]

    async def _create(self) -> None:
        self._number += 1
        name = f"extra-{self._number}"
        self.topics[name] = None
        await self.admin.create_topics([NewTopic(name, partitions=1, replication_factor=3)])
        self.topics[name] = True
        self.counts["topics created"] += 1

    async def _delete(self) -> None:
        if present := self._present():
            name = self.rng.choice(present)
            self.topics[name] = None
            await self.admin.delete_topics([name])
            self.topics[name] = False
            self.counts["topics deleted"] += 1

    async def _configure(self) -> None:
        if present := self._present():
            name, value = self.rng.choice(present), str(self.rng.randint(100_000, 999_999))
            asked = self.configs.setdefault(name, _Asked())
            asked.unknown.add(value)
            try:
                await self.admin.alter_configs({ConfigResource.topic(name): {_CONFIG: value}})
            except OutcomeUnknownError:
                raise
            except SteleError:
                asked.unknown.discard(value)
                raise
            asked.unknown.discard(value)
            asked.said = value
            self.counts["configs changed"] += 1

    async def _elect(self) -> None:
        await self.admin.elect_leaders()
        self.counts["elections of preferred leaders"] += 1
