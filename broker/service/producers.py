"""Producers: ids for idempotent ones, and those that a replica knows."""

from __future__ import annotations

from broker.replication.descriptions import LedProducer
from broker.service.context import BrokerContext
from broker.service.topics import Topics
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from stele.ids import PartitionId
from storage.producer_state import ProducerEntry


async def new_producer_id(context: BrokerContext, caller: Caller) -> int:
    """A new id for an idempotent producer. Raises ApiError CLUSTER_AUTHORIZATION_FAILED, and as
    ``ProducerIds.take`` does."""
    why = refusal(context.authorizer, caller, Operation.IDEMPOTENT_WRITE, CLUSTER)
    if why is not None:
        raise why
    return await context.producer_ids.take()


def topics(context: BrokerContext, caller: Caller) -> Topics:
    """Whose producers the caller may know."""
    return Topics(context, caller, Operation.READ)


def producers_of(context: BrokerContext, partition: PartitionId) -> list[ProducerEntry]:
    """Those that the leader of the partition knows. Raises ApiError where this is not it."""
    return context.replicas.descriptions.producers(partition)


def writable_topics(context: BrokerContext, caller: Caller) -> Topics:
    """Of which the caller may know what became of its own batches."""
    return Topics(context, caller, Operation.WRITE)


def producer_of(
    context: BrokerContext, partition: PartitionId, producer_id: int, current_leader_epoch: int
) -> LedProducer:
    """One producer, as the leader of this epoch (-1: of any) knows it. Raises ApiError where this
    is not it."""
    return context.replicas.descriptions.producer(partition, producer_id, current_leader_epoch)
