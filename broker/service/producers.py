"""Producers: ids for idempotent ones, and those that a replica knows."""

from __future__ import annotations

from broker.replication.descriptions import LedProducer
from broker.service.context import BrokerContext
from broker.service.topics import Topics
from runtime.authorization.authorizer import CLUSTER, Operation, ResourceType, refusal
from runtime.authorization.caller import Caller
from stele.errors import ApiError
from stele.ids import PartitionId
from storage.producer_state import ProducerEntry


async def new_producer_id(context: BrokerContext, caller: Caller) -> int:
    """A new id for an idempotent producer, for a caller that may write to any topic or has
    IDEMPOTENT_WRITE (KIP-679). Raises ApiError CLUSTER_AUTHORIZATION_FAILED, and as
    ``ProducerIds.take`` does."""
    authorizer = context.authorizer
    if not authorizer.allows_any(caller, Operation.WRITE, ResourceType.TOPIC):
        why = refusal(authorizer, caller, Operation.IDEMPOTENT_WRITE, CLUSTER)
        if why is not None:
            raise ApiError(
                why.code,
                f"{caller.principal} has no WRITE on any topic, nor IDEMPOTENT_WRITE on the "
                "cluster: an idempotent producer needs one of both",
            )
    return await context.producer_ids.take()


def topics(context: BrokerContext, caller: Caller) -> Topics:
    """The topics whose producers the caller may know."""
    return Topics(context, caller, Operation.READ)


def producers_of(context: BrokerContext, partition: PartitionId) -> list[ProducerEntry]:
    """The producers that the partition's leader knows. Raises ApiError on another broker."""
    return context.replicas.descriptions.producers(partition)


def writable_topics(context: BrokerContext, caller: Caller) -> Topics:
    """The topics in which the caller may know what became of its own batches."""
    return Topics(context, caller, Operation.WRITE)


def producer_of(
    context: BrokerContext, partition: PartitionId, producer_id: int, current_leader_epoch: int
) -> LedProducer:
    """One producer, as the leader of this epoch (-1: of any) knows it. Raises ApiError where this
    is not it."""
    return context.replicas.descriptions.producer(partition, producer_id, current_leader_epoch)
