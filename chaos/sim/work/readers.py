"""Readers of the metadata: they ask random nodes linearizable questions all the time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from chaos.sim.cluster.cluster import CONTROLLER_PORT, GRPC_PORT, SimCluster
from chaos.sim.laws.metadata_history import CONFIG, UNSET, MetadataHistory, Question
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from metadata.effective import DYNAMIC_TOPIC
from stele.addresses import Address
from stele.admin.admin import Admin
from stele.admin.descriptions import (
    TOPIC_RESOURCE,
    ConfigEntry,
    ConfigResource,
    topic_description,
)
from stele.errors import ErrorCode, SteleError
from stele.wire.v1 import admin_pb2 as pb
from stele.world import Channel, RpcError

_ADMIN = "/stele.v1.Admin/"
_PATIENCE_S = 5.0
_BY_CLIENT = 0.2  # the share of questions that our client asks

_Entry = ConfigEntry | pb.ConfigEntry


@dataclass(slots=True)
class Reader:
    """Asks a random node, or any node through our client. ``history`` judges the answers.

    Brokers answer, and so does the active controller, by the same read index. A node that cannot
    tell the newest metadata has to refuse.
    """

    cluster: SimCluster
    admin: Admin
    rng: random.Random
    history: MetadataHistory
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def answered(self) -> int:
        return self.counts["linearizable reads"]

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.0, 2.0) * pause_s)
            by_client = self.rng.random() < _BY_CLIENT
            try:
                await (self._ask_client() if by_client else self._ask_node())
            except (RpcError, SteleError, OSError):
                self.counts["linearizable reads unanswered"] += 1
            else:
                self.counts["linearizable reads"] += 1
        await self.admin.close()

    async def _ask_client(self) -> None:
        if self.rng.random() < 0.5:
            question = self.history.question("our client")
            self.history.topics_read(question, await self.admin.list_topics())
            return
        name = self.rng.choice(self.history.topics)
        question = self.history.question("our client")
        found = await self.admin.describe_configs([ConfigResource.topic(name)])
        for entries in found.values():
            self._config_read(question, name, entries)

    async def _ask_node(self) -> None:
        """Ask a random broker or controller. The controller may be inactive or deposed."""
        ports = [(node, GRPC_PORT) for node in self.cluster.brokers.values()]
        ports += [(node, CONTROLLER_PORT) for node in self.cluster.controllers.values()]
        node, port = self.rng.choice(ports)
        network = self.cluster.client_world.network
        channel = network.channel(Address(node.host, port))
        question = self.history.question(f"{node.host}:{port}")
        ask = self.rng.choice([self._ask_topics, self._ask_cluster, self._ask_config])
        try:
            await ask(channel, question)
        finally:
            await channel.close()

    # ------------------------------------------------------------------------------ questions

    async def _ask_topics(self, channel: Channel, question: Question) -> None:
        request = pb.DescribeTopicsRequest(linearizable=True)
        data = await channel.call(
            f"{_ADMIN}DescribeTopics", request.SerializeToString(), timeout_s=_PATIENCE_S
        )
        answer = pb.DescribeTopicsResponse.FromString(data)
        self.history.topics_read(question, [topic_description(each) for each in answer.topics])

    async def _ask_cluster(self, channel: Channel, question: Question) -> None:
        request = pb.DescribeClusterRequest(linearizable=True)
        data = await channel.call(
            f"{_ADMIN}DescribeCluster", request.SerializeToString(), timeout_s=_PATIENCE_S
        )
        answer = pb.DescribeClusterResponse.FromString(data)
        epochs = {each.broker_id: each.broker_epoch for each in answer.brokers}
        self.history.cluster_read(question, answer.metadata_offset, epochs)

    async def _ask_config(self, channel: Channel, question: Question) -> None:
        name = self.rng.choice(self.history.topics)
        resource = pb.ConfigResource(type=TOPIC_RESOURCE, name=name)
        request = pb.DescribeConfigsRequest(resources=[resource], linearizable=True)
        data = await channel.call(
            f"{_ADMIN}DescribeConfigs", request.SerializeToString(), timeout_s=_PATIENCE_S
        )
        answer = pb.DescribeConfigsResponse.FromString(data)
        (described,) = answer.resources
        if described.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.history.existence_read(question, name, is_there=False)
        elif described.error == ErrorCode.NONE:
            self._config_read(question, name, described.entries)

    def _config_read(self, question: Question, name: str, entries: Iterable[_Entry]) -> None:
        (told,) = (each for each in entries if each.name == CONFIG)
        value = told.value if told.source == DYNAMIC_TOPIC else UNSET
        self.history.existence_read(question, name, is_there=True)
        self.history.config_read(question, name, value)


class MetadataReaders(Work):
    name = "readers of the metadata"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._readers = [
            Reader(site.cluster, site.admin(), site.rngs.of(f"reader {number}"), site.metadata)
            for number in range(site.load.readers)
        ]

    @property
    def counted(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for each in self._readers:
            found.update(each.counts)
        return found

    def start(self) -> list[Coroutine[Any, Any, None]]:
        pause_s = self.site.load.read_pause_s
        return [each.run(pause_s, self.site.is_done) for each in self._readers]

    def goes_on(self, least: int) -> Callable[[], bool]:
        before = [each.answered for each in self._readers]
        return lambda: all(
            reader.answered > answered
            for reader, answered in zip(self._readers, before, strict=True)
        )
