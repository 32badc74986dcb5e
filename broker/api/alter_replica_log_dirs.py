"""AlterReplicaLogDirs (34), versions 1-2: the log directories of this broker in which its replicas
are to be (KIP-113).

Deviations: no topic name is too long, since a copy has the name of its log. A partition that does
not exist is answered with UNKNOWN_TOPIC_OR_PARTITION and not remembered. A move for which there is
no room is refused with KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.api.handler import RequestContext, Served
from broker.service.context import BrokerContext
from broker.service.directories import alter_directories
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.kafka.messages import alter_replica_log_dirs as messages
from stele.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from storage.turns import SLICE_STEPS, Slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    slices = Slices(SLICE_STEPS)
    wanted: dict[TopicPartition, str] = {}
    for partition, path in _named(request):
        wanted[partition] = path  # of a partition that is named twice, the last directory counts
        await slices.step()
    errors = await alter_directories(context, request_context.caller, wanted)
    results = _Results()
    for partition, error in errors.items():
        results.add(partition, error)
        await slices.step()
    return results.response()


def _named(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[TopicPartition, str]]:
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                yield TopicPartition(topic.name, number), directory.path


class _Results:
    """By topic, in the order in which the topics were named."""

    def __init__(self) -> None:
        self._topics: dict[str, AlterReplicaLogDirTopicResult] = {}

    def add(self, partition: TopicPartition, error: ErrorCode) -> None:
        name, number = partition
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = AlterReplicaLogDirTopicResult(name)
        topic.partitions.append(AlterReplicaLogDirPartitionResult(number, error))

    def response(self) -> AlterReplicaLogDirsResponse:
        return AlterReplicaLogDirsResponse(results=list(self._topics.values()))


async def refuse(
    request_context: RequestContext, request: AlterReplicaLogDirsRequest, error: ErrorCode
) -> AlterReplicaLogDirsResponse:
    slices, results = Slices(SLICE_STEPS), _Results()
    named: set[TopicPartition] = set()
    for partition, _ in _named(request):
        if partition not in named:
            named.add(partition)
            results.add(partition, error)
        await slices.step()
    return results.response()


SERVED = Served(messages.API, refuse, handle_async=handle)
