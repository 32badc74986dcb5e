"""What made a controller change a partition or a broker, from the decision that holds the change.

The log has no field for a cause. But a decision is one batch, and it holds what it is about: the
fencing of a broker is in the same batch as the elections that it makes necessary.
"""

from __future__ import annotations

from collections.abc import Iterator

from metadata.explain.history import Decision
from metadata.partitions import NO_LEADER, PartitionState
from stele.ids import encode_uuid
from stele.wire.v1 import metadata_pb2 as pb


def broker_events(decision: Decision) -> Iterator[tuple[int, str]]:
    """(broker id, what happened to it) for each broker that a decision is about."""
    for record in decision.records:
        if record.HasField("register_broker"):
            broker_id = record.register_broker.broker_id
            known = decision.before.broker(broker_id) is not None
            yield broker_id, "a new process of it registered" if known else "it registered"
        elif record.HasField("unregister_broker"):
            yield record.unregister_broker.broker_id, "it was unregistered"
        elif record.HasField("broker_state"):
            yield from _state_events(decision, record.broker_state)


def _state_events(decision: Decision, state: pb.BrokerStateRecord) -> Iterator[tuple[int, str]]:
    before = decision.before.broker(state.broker_id)
    was_fenced = before is None or before.fenced
    was_leaving = before is not None and before.in_controlled_shutdown
    was_full = before is not None and before.out_of_room
    if state.fenced and not was_fenced:
        orderly = "it had shut down" if was_leaving else "its process ended or was silent"
        yield state.broker_id, f"it was fenced: {orderly}"
    elif was_fenced and not state.fenced:
        yield state.broker_id, "it was unfenced: it serves"
    if state.in_controlled_shutdown and not was_leaving:
        yield state.broker_id, "it began a controlled shutdown"
    if state.out_of_room != was_full:
        yield state.broker_id, "a disk of it is full" if state.out_of_room else "it has room again"
    were_offline = () if before is None else before.offline_directories
    for directory_id in sorted({*state.offline_directories} - {*were_offline}):
        yield state.broker_id, f"its log directory {encode_uuid(directory_id)} is offline"


class PartitionCauses:
    """The reasons for which one decision changed its partitions. It may change thousands, so its
    records of brokers and configurations are looked up once."""

    def __init__(self, decision: Decision) -> None:
        self._of_brokers = list(broker_events(decision))
        self._of_configs = list(_config_events(decision))

    def of(
        self, change: pb.PartitionChangeRecord, before: PartitionState, after: PartitionState
    ) -> str:
        """Why this one was changed, in one line."""
        told = self._told(before, after) or _by_itself(change, before, after)
        if change.unclean:
            return f"unclean election, records may be lost: {told}"
        return told

    def _told(self, before: PartitionState, after: PartitionState) -> str:
        """What the decision says of brokers that have the partition, and of its configuration."""
        concerned = {*before.replicas, *after.replicas}
        events = [
            f"broker {broker_id}: {what}"
            for broker_id, what in self._of_brokers
            if broker_id in concerned
        ]
        return "; ".join((*events, *self._of_configs))


def _config_events(decision: Decision) -> Iterator[str]:
    for record in decision.records:
        if record.HasField("config"):
            config = record.config
            value = f"={config.value}" if config.HasField("value") else " was removed"
            yield f"{config.name}{value} was set on {config.resource_name or 'the cluster'}"


def _by_itself(
    change: pb.PartitionChangeRecord, before: PartitionState, after: PartitionState
) -> str:
    """The only possible meaning of a change that stands alone."""
    left = sorted(set(before.isr) - set(after.isr))
    came = sorted(set(after.isr) - set(before.isr))
    if after.is_reassigning and not before.is_reassigning:
        return f"a reassignment to {list(after.target_replicas)} began"
    if before.is_reassigning and not after.is_reassigning:
        return f"the reassignment ended with the replicas {list(after.replicas)}"
    if after.replicas != before.replicas and not after.is_reassigning:
        return f"a reassignment to {list(after.replicas)} took effect at once"
    told = [
        each for each in after.replicas if after.directory_of(each) != before.directory_of(each)
    ]
    if change.HasField("directories") and told:
        return f"broker {told[0]} told in which log directory its replica is"
    if change.HasField("leader") and after.leader != before.leader:
        if after.leader == NO_LEADER:
            return "no replica that has all records can lead"
        if after.leader == after.preferred_leader and after.leader in before.isr:
            return f"broker {after.leader} is the preferred leader"
        return f"an election was asked for, and broker {after.leader} could lead"
    if left and came:
        return f"leader {before.leader} reported that {came} caught up and {left} fell behind"
    if left:
        return f"leader {before.leader} reported that {left} fell behind"
    if came:
        return f"leader {after.leader} reported that {came} caught up"
    if after.leader_recovery_state != before.leader_recovery_state:
        return f"leader {after.leader} has recovered after an unclean election"
    return "the eligible replicas changed"
