"""The creation of a dead letter topic by a broker (KIP-1191)."""

from __future__ import annotations

import logging
from typing import Final

from broker.service.changes import accepted_change
from broker.service.context import BrokerContext
from runtime.administration.parts import error_code
from runtime.authorization.caller import broker_caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb

logger = logging.getLogger(__name__)

_CREATE_TIMEOUT_S: Final = 5.0
_DEFAULT: Final = -1
"""Partitions and replicas as the controllers' num.partitions and default.replication.factor say."""


async def make_letter_topic(context: BrokerContext, name: str) -> None:
    """Have the controller make a topic that takes dead letters. It may be there already. Raises
    ApiError, whose message names the topic."""
    # The broker makes it: members of the group need no right to create topics.
    broker = broker_caller(context.broker_id, context.config.inter_broker_listener_name)
    wanted = pb.NewTopic(
        name=name,
        partitions=_DEFAULT,
        replication_factor=_DEFAULT,
        configs={"errors.deadletterqueue.group.enable": "true"},
    )
    try:
        request = pb.CreateTopicsRequest(topics=[wanted])
        answer = await accepted_change(context, broker, request, timeout_s=_CREATE_TIMEOUT_S)
    except ApiError as error:
        raise ApiError(error.code, _cannot_be_made(name, error.message)) from error
    (result,) = answer.topics
    if result.error == ErrorCode.NONE:
        logger.info("made the dead letter topic %s", name)
    elif result.error != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise ApiError(error_code(result.error), _cannot_be_made(name, result.message))


def _cannot_be_made(name: str, why: str) -> str:
    return f"the dead letter topic {name!r} cannot be made: {why}"
