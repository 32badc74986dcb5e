"""DescribeLogDirs (35), versions 1-4: this broker's log directories and their replicas
(KIP-113).

A replica that moves to a directory is described there as a future one, before and while its copy is
filled. Deviation: the replicas in an offline directory are named, too. Their sizes and lags are -1.
Kafka names none.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.replication.descriptions import DirectoryDescription
from broker.service.context import BrokerContext
from broker.service.directories import describe_directories
from stele.errors import ErrorCode
from stele.wire.kafka.messages import describe_log_dirs as messages
from stele.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, number) for topic in request.topics for number in topic.partitions}
    directories = await describe_directories(context, request_context.caller, wanted)
    return DescribeLogDirsResponse(results=[_result(directory) for directory in directories])


def _result(directory: DirectoryDescription) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for each in directory.replicas:
        topic = topics.setdefault(each.topic, DescribeLogDirsTopic(name=each.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(
                each.partition, each.size_bytes, each.offset_lag, each.is_future
            )
        )
    return DescribeLogDirsResult(
        error_code=directory.error,
        log_dir=directory.path,
        topics=list(topics.values()),
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )


def refuse(
    request_context: RequestContext, request: DescribeLogDirsRequest, error: ErrorCode
) -> DescribeLogDirsResponse:
    """Versions below 3 have no field for the error. They describe no directory instead."""
    return DescribeLogDirsResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
