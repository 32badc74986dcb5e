"""The controller's machine under test: applies decisions and checks each of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from controller import cluster, directories, elections, isr, reassignment, topics
from controller.configs import bootstrap
from controller.machine import Context, ControllerResult
from metadata.delta import replay_values
from metadata.effective import min_insync_replicas
from metadata.features import supported_ranges
from metadata.image import EMPTY, MetadataImage
from metadata.partitions import NO_LEADER, RECOVERED, PartitionState
from metadata.records import encode
from raft.quorum import FeatureLevels
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import controller_pb2 as pb
from stele.wire.v1.metadata_pb2 import Endpoint

Reply = TypeVar("Reply")

CLUSTER_ID = "test-cluster"


def incarnation(broker_id: int, number: int = 0) -> bytes:
    return b"%08d%08d" % (broker_id, number)


def endpoints(broker_id: int, host: str = "localhost") -> list[Endpoint]:
    return [
        Endpoint(listener="PLAINTEXT", host=host, port=9092 + broker_id, protocol="PLAINTEXT"),
        Endpoint(listener="PLAINTEXT", host=host, port=9192 + broker_id, protocol="GRPC"),
    ]


class Machine:
    """An image and the decisions on it, without a quorum: everything commits at once."""

    def __init__(self, static: Mapping[str, str] | None = None, seed: int = 0) -> None:
        self.static = dict(static or {})
        self.rng = random.Random(seed)
        self.image = EMPTY
        self.next_offset = 1  # the first record is the quorum's own
        self.last_records: tuple[object, ...] = ()
        self.now_ms = 0
        self.controllers: dict[int, tuple[FeatureLevels, ...]] = {}
        self.do(bootstrap)

    def do(self, decide: Callable[[Context], ControllerResult[Reply]]) -> Reply:
        context = Context(
            self.image,
            self.next_offset,
            self.static,
            self.rng,
            CLUSTER_ID,
            self.controllers,
            self.now_ms,
        )
        result = decide(context)
        self.last_records = result.records
        values = [encode(record) for record in result.records]
        replayed = replay_values(self.image, self.next_offset, values) if values else self.image
        assert replayed == result.image, "the log leads elsewhere than the decision"
        check_step(self.image, result.image)
        check_image(result.image)
        self.next_offset += len(values) + self.rng.randrange(0, 2)
        self.image = result.image
        return result.reply

    # ---------------------------------------------------------------- short cuts

    def register(
        self,
        broker_id: int,
        number: int = 0,
        *,
        alive: bool = False,
        rack: str = "",
        **more: object,
    ) -> int:
        fields: dict[str, object] = {
            "cluster_id": CLUSTER_ID,
            "broker_id": broker_id,
            "incarnation_id": incarnation(broker_id, number),
            "endpoints": endpoints(broker_id),
            "rack": rack,
            "features": supported_ranges(),
        }
        fields.update(more)
        request = pb.RegisterBrokerRequest(**fields)  # type: ignore[arg-type]
        return self.do(lambda context: cluster.register(context, request, session_alive=alive))

    def heartbeat(
        self,
        broker_id: int,
        *,
        offset: int | None = None,
        shutdown_offset: int | None = None,
        **more: object,
    ) -> cluster.BrokerStanding:
        registration = self.image.brokers[broker_id]
        request = pb.HeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=registration.broker_epoch,
            incarnation_id=registration.incarnation_id,
            metadata_offset=self.image.offset if offset is None else offset,
            **more,  # type: ignore[arg-type]
        )
        return self.do(
            lambda context: cluster.heartbeat(context, request, shutdown_offset=shutdown_offset)
        )

    def brokers(self, *ids: int, racks: Mapping[int, str] | None = None) -> None:
        """Register brokers and unfence them."""
        for broker_id in ids:
            self.register(broker_id, rack=(racks or {}).get(broker_id, ""))
            self.heartbeat(broker_id)

    def fence(self, broker_id: int) -> bool:
        epoch = self.image.brokers[broker_id].broker_epoch
        return self.do(lambda context: cluster.fence(context, broker_id, epoch))

    def unregister(self, broker_id: int) -> None:
        request = admin.UnregisterBrokerRequest(broker_id=broker_id)
        self.do(lambda context: cluster.unregister(context, request))

    def create(
        self,
        name: str,
        assignments: Mapping[int, list[int]] | None = None,
        partitions: int = -1,
        factor: int = -1,
        *,
        validate_only: bool = False,
        **configs: str,
    ) -> admin.CreateTopicsResponse.Topic:
        topic = admin.NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=factor,
            assignments=[
                admin.NewTopic.Assignment(partition=number, replicas=replicas)
                for number, replicas in (assignments or {}).items()
            ],
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        request = admin.CreateTopicsRequest(topics=[topic], validate_only=validate_only)
        return self.do(lambda context: topics.create_topics(context, request)).topics[0]

    def partition(self, topic: str, number: int = 0) -> PartitionState:
        found = self.image.topic(topic)
        assert found is not None
        return found.partitions[number]

    def alter(
        self, topic: str, *members: int, number: int = 0, leader: int | None = None, **more: object
    ) -> pb.AlterPartitionResponse.Partition:
        """AlterPartition by the leader with the current epochs, unless ``more`` has others."""
        found = self.image.topic(topic)
        assert found is not None
        state = found.partitions[number]
        sender = state.leader if leader is None else leader
        fields: dict[str, object] = {
            "topic_id": found.topic_id,
            "partition": number,
            "leader_epoch": state.leader_epoch,
            "partition_epoch": state.partition_epoch,
            "isr": [
                pb.AlterPartitionRequest.Member(
                    broker_id=member, broker_epoch=self.epoch_of(member)
                )
                for member in members
            ],
        }
        fields.update(more)
        request = pb.AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=self.epoch_of(sender),
            partitions=[pb.AlterPartitionRequest.Partition(**fields)],  # type: ignore[arg-type]
        )
        return self.do(lambda context: isr.alter_partitions(context, request)).partitions[0]

    def reassign(
        self, topic: str, *target: int, number: int = 0, keep_factor: bool = False
    ) -> ErrorCode:
        """Reassign a partition. Without a target: cancel its reassignment."""
        wish = admin.AlterPartitionReassignmentsRequest.Partition(topic=topic, partition=number)
        if target:
            wish.target.ids.extend(target)
        request = admin.AlterPartitionReassignmentsRequest(
            partitions=[wish], keep_replication_factor=keep_factor
        )
        answer = self.do(
            lambda context: reassignment.alter_partition_reassignments(context, request)
        ).partitions[0]
        assert bool(answer.error) == bool(answer.message), "every refusal says why"
        return ErrorCode(answer.error)

    def assign(
        self, broker_id: int, directory_id: bytes, *replicas: pb.PartitionReference, **more: object
    ) -> dict[tuple[bytes, int], ErrorCode]:
        """AssignReplicasToDirectories; the refusals, by topic id and partition."""
        fields: dict[str, object] = {
            "broker_id": broker_id,
            "broker_epoch": self.epoch_of(broker_id),
            "directories": [
                pb.AssignReplicasToDirectoriesRequest.Directory(
                    directory_id=directory_id, replicas=replicas
                )
            ],
        }
        request = pb.AssignReplicasToDirectoriesRequest(**{**fields, **more})  # type: ignore[arg-type]
        answer = self.do(lambda context: directories.assign_replicas(context, request))
        assert all(each.message for each in answer.refusals), "every refusal says why"
        return {(each.topic_id, each.partition): ErrorCode(each.error) for each in answer.refusals}

    def elect_uncleanly(self, topic: str, number: int = 0) -> None:
        request = admin.ElectLeadersRequest(unclean=True)
        request.partitions.add(topic=topic, partition=number)
        self.do(lambda context: elections.elect_leaders(context, request))

    def epoch_of(self, broker_id: int) -> int:
        registration = self.image.broker(broker_id)
        return -1 if registration is None else registration.broker_epoch

    def reference(self, topic: str, number: int = 0) -> pb.PartitionReference:
        found = self.image.topic(topic)
        assert found is not None
        return pb.PartitionReference(topic_id=found.topic_id, partition=number)


def refusal(action: Callable[[], object]) -> ApiError:
    try:
        action()
    except ApiError as error:
        return error
    raise AssertionError("it was not refused")


# ---------------------------------------------------------------------------------- invariants


def check_image(image: MetadataImage) -> None:
    """Check what holds in every state."""
    assert sorted(image.topics.ids.values()) == sorted(image.topics)
    for topic, number, state in image.sorted_partitions():
        where = f"{topic.name}-{number}: {state}"
        isr_, elr = set(state.isr), set(state.elr)
        assert isr_ <= set(state.replicas), where
        assert elr <= set(state.replicas), where
        assert not isr_ & elr, where
        assert len(set(state.replicas)) == len(state.replicas), where
        assert state.leader == NO_LEADER or state.leader in isr_, where
        if state.leader != NO_LEADER:
            assert may_lead(image, state, state.leader), where
        for member in isr_:
            # A replica that cannot serve is in an ISR only as its last member, without leading.
            alone = isr_ == {member} and state.leader == NO_LEADER
            assert may_lead(image, state, member) or alone, where
        enough = min(min_insync_replicas(image, topic.name), state.replication_factor)
        assert len(isr_) < enough or not elr, where
        if state.leader == NO_LEADER:
            eligible = [r for r in (*state.isr, *state.elr) if may_lead(image, state, r)]
            assert not eligible, f"could have a leader: {where}"
        check_assignment(image, state, where)


def may_lead(image: MetadataImage, state: PartitionState, broker_id: int) -> bool:
    return image.is_active(broker_id) and image.has_online(broker_id, state.directory_of(broker_id))


def check_assignment(image: MetadataImage, state: PartitionState, where: str) -> None:
    """Check that a reassignment is either under way, with all its parts, or not at all."""
    target, original = set(state.target_replicas), set(state.original_replicas)
    assert target, where
    if not state.is_reassigning:
        assert not state.adding_replicas, where
        assert not state.removing_replicas, where
        return
    assert set(state.replicas) == target | original, where
    assert state.replicas[: len(target)] == state.target_replicas, where
    assert set(state.adding_replicas) == target - original, where
    assert set(state.removing_replicas) == original - target, where
    assert target != original, where
    in_sync = target <= set(state.isr) and any(may_lead(image, state, each) for each in target)
    recovered = state.leader_recovery_state == RECOVERED
    assert not (in_sync and recovered), f"could be completed: {where}"


def check_step(before: MetadataImage, after: MetadataImage) -> None:
    """Check what holds between two successive states."""
    assert after.producer_ids.next_id >= before.producer_ids.next_id
    for broker_id, registration in before.brokers.items():
        later = after.brokers.get(broker_id)
        if later is None:
            assert registration.fenced, "only a broker that is gone is forgotten"
            for topic, number, state in after.sorted_partitions():
                assert broker_id not in (*state.isr, *state.elr), f"{topic.name}-{number}: {state}"
            continue
        assert later.broker_epoch >= registration.broker_epoch
        if later.incarnation_id != registration.incarnation_id:
            assert later.fenced
            assert later.broker_epoch > registration.broker_epoch
    for topic, number, old in before.sorted_partitions():
        new = after.partition(topic.topic_id, number)
        if new is None:
            continue
        key = PartitionId(topic.topic_id, number)
        assert new.partition_epoch >= old.partition_epoch, key
        assert new.leader_epoch >= old.leader_epoch, key
        assert (new == old) == (new.partition_epoch == old.partition_epoch), key
        if new.leader != old.leader:
            assert new.leader_epoch > old.leader_epoch, key
        ended = old.is_reassigning and not new.is_reassigning
        completed = ended and set(new.replicas) != set(old.original_replicas)
        if new.unclean_elections == old.unclean_elections and new.leader != NO_LEADER:
            # The last replica of a target to come into sync may lead in the decision that adds it.
            known = (*old.isr, *old.elr, *(new.isr if completed else ()))
            assert new.leader in known, "an unclean election went unrecorded"
        if completed or not set(old.replicas) <= set(new.replicas):
            assert new.leader_epoch > old.leader_epoch, "the leader may go by the old replicas"
        if set(new.replicas) < set(old.replicas):
            assert new.isr, "who was dropped may have been the last to have everything"
