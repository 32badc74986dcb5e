"""What a request costs its client, and how long the client waits afterwards (KIP-124, KIP-219).

The answer goes out at once and says the time, and then nothing is read from the connection. So a
client that does not heed the time waits, too, and none runs into its own time-out.

Deviations: bytes are those of the whole Produce request, as in Kafka, and of the records of a
Fetch, where Kafka counts the whole answer. The loop's time is that of decoding, the handler's turns
and encoding. The turn in which a consumer's waiting Fetch is woken and answered counts from the
connection's next answer on. That of a follower's Fetch is counted nowhere.
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

from broker.api import fetch
from broker.service.quotas import EXEMPT, BrokerQuotas, log_throttle
from metadata.client_quotas import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from runtime.authorization.caller import Caller
from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.requests import PendingRequest
from runtime.quota.manager import QuotaManager
from runtime.quota.precedence import Client
from stele.wire.kafka import ApiKey, RequestHeader, Struct
from stele.wire.kafka.messages.fetch import FetchRequest
from stele.wire.kafka.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

_LOGINS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_OF_NODES: Final = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
_BATCHED_FROM: Final = 4
"""Only brokers send AddPartitionsToTxn from this version on."""


def take_up(
    quotas: BrokerQuotas,
    manager: QuotaManager,
    caller: Caller,
    request: PendingRequest,
    message: Struct,
) -> None:
    """Find out whose quotas a request counts for. EXEMPT: a node asks, or somebody logs in.

    The bytes of a Produce count when it arrives. A connection has many of them in flight, and all
    would be taken before the answer to the first could hold back the others.
    """
    header = request.header
    if header.api_key in _LOGINS or _is_of_node(header, message):
        request.payer = EXEMPT
        return
    payer = request.payer = quotas.payer(caller)
    if header.api_key == ApiKey.PRODUCE and payer is not EXEMPT:
        throttle = manager.record(PRODUCER_BYTE_RATE, payer, request.size_bytes, quotas.now_s())
        if throttle is not None:
            log_throttle(payer, throttle)
            request.throttle_ms = math.ceil(throttle.seconds * 1000)
            connection = cast(KafkaServerProtocol, request.connection)
            connection.mute(request.throttle_ms / 1000)


def _is_of_node(header: RequestHeader, message: Struct) -> bool:
    """Whether the request is of a kind that only brokers send. Others are refused it if there is an
    authorizer."""
    if isinstance(message, FetchRequest):
        return fetch.is_of_follower(message)
    if isinstance(message, OffsetForLeaderEpochRequest):
        return message.replica_id >= 0
    if header.api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return header.api_version >= _BATCHED_FROM
    return header.api_key in _OF_NODES


def charge(
    quotas: BrokerQuotas, payer: Client, request: PendingRequest, message: Struct | None
) -> None:
    """Count a request that is answered with ``message``, and have its client wait if it must.

    The handler may have written a time to wait into the answer already.
    """
    connection = cast(KafkaServerProtocol, request.connection)
    spent_s = connection.loop_share.take()
    if payer is EXEMPT:
        quotas.exempt_s += spent_s
        return
    manager = quotas.manager
    if manager is None:
        return
    answer: Any = message
    asked_ms = getattr(message, "throttle_time_ms", 0)
    if message is not None:  # with acks=0 only bytes count, as in Kafka
        throttle = manager.record(REQUEST_PERCENTAGE, payer, spent_s * 100, quotas.now_s())
        if throttle is not None:
            log_throttle(payer, throttle)
            asked_ms = max(asked_ms, math.ceil(throttle.seconds * 1000))
    if asked_ms:
        connection.mute(asked_ms / 1000)
    wait_ms = max(asked_ms, request.throttle_ms)
    if wait_ms and hasattr(message, "throttle_time_ms"):
        answer.throttle_time_ms = wait_ms
