"""Internal topics, made when the first client needs one."""

from __future__ import annotations

import logging
from typing import Final

from broker.service.changes import accepted_change
from broker.service.context import BrokerContext
from metadata.features import TRANSACTION_VERSION, supported_by
from metadata.image import MetadataImage
from metadata.internal_topics import CLEANUP, GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from metadata.topics import Topic
from runtime.authorization.caller import broker_caller
from runtime.config.node import NodeConfig
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb

logger = logging.getLogger(__name__)

_CREATE_TIMEOUT_S = 5.0

_FACTORS: Final = {
    GROUP_TOPIC: NodeConfig.offsets_topic_replication_factor,
    TRANSACTION_TOPIC: NodeConfig.transaction_state_log_replication_factor,
    SHARE_TOPIC: NodeConfig.share_coordinator_state_topic_replication_factor,
}
"""The setting of each topic's replication factor."""


def _replication_factor(config: NodeConfig, image: MetadataImage, topic: str) -> int:
    """The setting's value. A default is at most the number of registered brokers. A value that was
    set stays, since its promise must be kept."""
    key = _FACTORS[topic].key
    factor = _FACTORS[topic].read(config.raw)
    return factor if key.name in config.raw else max(1, min(factor, len(image.brokers.map)))


def group_topic(config: NodeConfig, image: MetadataImage) -> pb.NewTopic:
    """``__consumer_offsets`` as the broker's configuration wants it."""
    return pb.NewTopic(
        name=GROUP_TOPIC,
        partitions=config.offsets_topic_num_partitions,
        replication_factor=_replication_factor(config, image, GROUP_TOPIC),
        configs={
            **CLEANUP[GROUP_TOPIC],
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def transaction_topic(config: NodeConfig, image: MetadataImage) -> pb.NewTopic:
    """``__transaction_state`` as the broker's configuration wants it. As in Kafka, an unclean
    election never makes anybody its leader. A min.insync.replicas above the replication factor
    asks for all replicas."""
    return pb.NewTopic(
        name=TRANSACTION_TOPIC,
        partitions=config.transaction_state_log_num_partitions,
        replication_factor=_replication_factor(config, image, TRANSACTION_TOPIC),
        configs={
            **CLEANUP[TRANSACTION_TOPIC],
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


def share_topic(config: NodeConfig, image: MetadataImage) -> pb.NewTopic:
    """``__share_group_state`` as the broker's configuration wants it. A leader of an unclean
    election could have lost that records were accepted, and they would be delivered again."""
    return pb.NewTopic(
        name=SHARE_TOPIC,
        partitions=config.share_coordinator_state_topic_num_partitions,
        replication_factor=_replication_factor(config, image, SHARE_TOPIC),
        configs={
            **CLEANUP[SHARE_TOPIC],
            "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


def check_transactions(image: MetadataImage) -> None:
    """Raises ApiError if a broker does not know transactions, while a cluster is brought to a new
    version: it would refuse what it leads. No client asks again after this error."""
    for registration in image.sorted_brokers():
        if not supported_by(registration.features, TRANSACTION_VERSION).max_level:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                f"broker {registration.broker_id} runs a version of Stele without transactions",
            )


async def made(context: BrokerContext, wanted: pb.NewTopic) -> Topic:
    """The topic, which is made first if it is not there. Raises ApiError
    COORDINATOR_NOT_AVAILABLE: it cannot be made now, and why is in the log."""
    topic = context.image().topic(wanted.name)
    if topic is None:
        await _make(context, wanted)
        topic = context.image().topic(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{wanted.name} is not there yet")
    return topic


async def _make(context: BrokerContext, wanted: pb.NewTopic) -> None:
    # The broker makes it, whatever the client may do that happened to need it.
    listener = context.config.inter_broker_listener_name
    broker = broker_caller(context.broker_id, listener)
    try:
        request = pb.CreateTopicsRequest(topics=[wanted])
        answer = await accepted_change(context, broker, request, timeout_s=_CREATE_TIMEOUT_S)
        (result,) = answer.topics
    except ApiError as error:
        logger.warning("%s cannot be made: %s", wanted.name, error)
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
    setting = _FACTORS[wanted.name].key
    if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        why = f"{wanted.name} cannot be made: {result.message}"
        if result.error == ErrorCode.INVALID_REPLICATION_FACTOR:
            why += f"; start more brokers, or set {setting.name} lower on all brokers"
        logger.warning("%s", why)
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    expected = int(setting.default or 0)
    is_set = setting.name in context.config.raw
    if result.error == ErrorCode.NONE and not is_set and wanted.replication_factor < expected:
        logger.warning(
            "%s has %d replicas of each partition and not %d: %s is not set, and so few brokers "
            "are registered. stele reassign gives it more",
            wanted.name,
            wanted.replication_factor,
            expected,
            setting.name,
        )
