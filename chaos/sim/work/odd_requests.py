"""An administrator whose requests are wrong: each has one right answer, and changes nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.partition_name import PartitionName
from metadata.internal_topics import INTERNAL_TOPICS
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from stele.wire.v1.admin_pb2 import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
)
from stele.world import RpcError

_FAR: Final = 1000  # no topic has so many partitions
_NO_BROKER: Final = 999


@dataclass(slots=True)
class OddRequests:
    """Call ``run``."""

    cluster: SimCluster
    rng: random.Random
    partitions: Sequence[PartitionName]  # they are there all the time
    report: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        acts = [self._name_twice, self._move_to_nobody, self._elect_nowhere]
        acts += [self._remove_another_disk, self._add_a_voter_again]
        acts += [self._grow_internal_topics, self._delete_internal_topics]
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
            try:
                await self.rng.choice(acts)()
            except (ApiError, RpcError):
                self.counts["odd requests without an answer"] += 1

    async def _name_twice(self) -> None:
        """A partition with two targets: none of the two is meant more than the other."""
        topic, partition = self.rng.choice(self.partitions)
        brokers = sorted(self.cluster.brokers)
        targets = [self.rng.sample(brokers, len(brokers)) for _ in range(2)]
        await self._reassign(topic, partition, targets, ErrorCode.INVALID_REQUEST)

    async def _move_to_nobody(self) -> None:
        topic, partition = self.rng.choice(self.partitions)
        one, other = self.rng.sample(sorted(self.cluster.brokers), 2)
        for target in ([one, other, one], [one, _NO_BROKER], []):
            await self._reassign(topic, partition, [target], ErrorCode.INVALID_REPLICA_ASSIGNMENT)

    async def _reassign(
        self, topic: str, partition: int, targets: Sequence[Sequence[int]], right: ErrorCode
    ) -> None:
        request = AlterPartitionReassignmentsRequest()
        for target in targets:
            wish = request.partitions.add(topic=topic, partition=partition)
            wish.target.SetInParent()
            wish.target.ids.extend(target)
        answer = await self.cluster.client.change(request)
        if answer.error == ErrorCode.NONE:
            self._judge(
                f"moves of {topic}-{partition} to {targets}",
                [each.error for each in answer.partitions],
                right,
            )

    async def _elect_nowhere(self) -> None:
        topic, _ = self.rng.choice(self.partitions)
        request = ElectLeadersRequest(unclean=self.rng.random() < 0.5)
        request.partitions.add(topic=topic, partition=-1)
        request.partitions.add(topic=topic, partition=_FAR)
        request.partitions.add(topic="nowhere", partition=0)
        answer = await self.cluster.client.change(request)
        if answer.error == ErrorCode.NONE:
            self._judge(
                "elections where there is nothing",
                [each.error for each in answer.partitions],
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )

    async def _grow_internal_topics(self) -> None:
        """Coordinators would look for groups and transactions in other partitions."""
        request = CreatePartitionsRequest()
        for topic in sorted(INTERNAL_TOPICS):
            request.topics.add(name=topic, count=self.rng.randint(4, 9))
        answer = await self.cluster.client.change(request)
        if answer.error == ErrorCode.NONE:
            self._judge(
                "more partitions of internal topics",
                [each.error for each in answer.topics],
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            )

    async def _delete_internal_topics(self) -> None:
        request = DeleteTopicsRequest(names=sorted(INTERNAL_TOPICS))
        answer = await self.cluster.client.change(request)
        if answer.error == ErrorCode.NONE:
            self._judge(
                "the deletion of internal topics",
                [each.error for each in answer.topics],
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            )

    async def _remove_another_disk(self) -> None:
        """A voter goes only by the disk that it has."""
        if voters := self.cluster.voter_ids:
            voter, disk = self.rng.choice(voters), self.rng.randbytes(16)
            request = pb.RemoveVoterRequest(voter_id=voter, voter_directory_id=disk)
            await self._change_voters("RemoveVoter", request, voter)

    async def _add_a_voter_again(self) -> None:
        """With another disk it would forget its votes."""
        if voters := self.cluster.voter_ids:
            voter, disk = self.rng.choice(voters), self.rng.randbytes(16)
            request = pb.AddVoterRequest(
                voter_id=voter, voter_directory_id=disk, endpoint="nowhere:9093", timeout_ms=1000
            )
            await self._change_voters("AddVoter", request, voter)

    async def _change_voters(
        self, method: str, request: pb.AddVoterRequest | pb.RemoveVoterRequest, voter: int
    ) -> None:
        raw = await self.cluster.client.administrate(method, request.SerializeToString())
        answer = pb.VoterChangeResponse.FromString(raw)
        self.counts["odd requests"] += 1
        if answer.error == ErrorCode.NONE:
            self.report(f"{method} of {voter} with a disk that it does not have is confirmed")

    def _judge(self, what: str, errors: Sequence[int], right: ErrorCode) -> None:
        self.counts["odd requests"] += 1
        if not errors or any(error != right for error in errors):
            names = [ErrorCode(error).name for error in errors]
            self.report(f"asked for {what}, answered {names}: {right.name} is right")
