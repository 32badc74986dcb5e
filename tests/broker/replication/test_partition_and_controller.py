"""A leader's machine together with the controller's: what each knows of the other's rules at any
moment.

Answers and metadata reach the leader at different times, and metadata in pieces of any size.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.partition.effects import BrokerStatus, Effect, IsrAnswer, LogPosition, Proposed
from broker.partition.machine import PartitionMachine
from controller import configs, isr
from metadata.effective import min_insync_replicas
from metadata.image import MetadataImage
from metadata.partitions import RECOVERED, PartitionState
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import controller_pb2 as pb
from stele.wire.v1.metadata_pb2 import ConfigResourceType
from tests.support.controller import Machine

TOPIC = "t"
LEADER, FOLLOWERS = 1, (2, 3)
LAG_MS = 30_000.0


class LeaderAndController(RuleBasedStateMachine):
    """Broker 1 leads for ever. The controller decides, and broker 1 hears of it later."""

    @initialize(min_insync=st.integers(1, 3))
    def begin(self, min_insync: int) -> None:
        self.controller = Machine()
        self.controller.brokers(LEADER, *FOLLOWERS)
        self.controller.create(TOPIC, {0: [1, 2, 3]}, min_insync_replicas=str(min_insync))
        self.now_ms = 0.0
        self.log = LogPosition(0, 0, 0, 0)
        self.ends = dict.fromkeys(FOLLOWERS, 0)  # on disk; they grow
        self.image = self.controller.image  # what broker 1 has applied
        self.decided: list[MetadataImage] = []  # what it has not heard of yet
        self.proposal: Proposed | None = None
        self.answers: list[tuple[Proposed, IsrAnswer]] = []
        self.copies: list[pb.AlterPartitionRequest] = []  # of all requests, which may come late
        self.leader = PartitionMachine(LEADER, log=self.log, high_watermark=0, lag_max_ms=LAG_MS)
        self.observe(self.leader.updated(self.state(self.image), min_insync, self.log, self.now_ms))

    # ------------------------------------------------------------------------ bookkeeping

    @staticmethod
    def state(image: MetadataImage) -> PartitionState:
        topic = image.topic(TOPIC)
        assert topic is not None
        return topic.partitions[0]

    def status(self, broker_id: int) -> BrokerStatus:
        registration = self.image.brokers[broker_id]
        return BrokerStatus(registration.broker_epoch, registration.active)

    def observe(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Proposed):
                self.proposal = effect

    def note_decision(self) -> None:
        if self.controller.last_records:
            self.decided.append(self.controller.image)

    # ------------------------------------------------------------------------- the leader

    @rule(count=st.integers(1, 2))
    def append(self, count: int) -> None:
        end = self.log.end_offset + count
        self.log = self.log._replace(end_offset=end, durable_offset=end)
        self.observe(self.leader.appended(self.log, self.now_ms))
        self.observe(self.leader.made_durable(self.log, self.now_ms))

    @rule(broker_id=st.sampled_from(FOLLOWERS), ahead=st.integers(0, 3))
    def fetch(self, broker_id: int, ahead: int) -> None:
        offset = min(self.ends[broker_id] + ahead, self.log.end_offset)
        self.ends[broker_id] = offset
        self.observe(self.leader.fetched(broker_id, offset, self.status(broker_id), self.now_ms))

    @rule(elapsed_ms=st.sampled_from([1.0, 600.0, 2 * LAG_MS]))
    def tick(self, elapsed_ms: float) -> None:
        self.now_ms += elapsed_ms
        self.observe(self.leader.ticked(self.now_ms))

    @precondition(lambda self: self.answers)
    @rule()
    def hear_an_answer(self) -> None:
        self.observe(self.leader.answered(*self.answers.pop(0), self.now_ms))

    @precondition(lambda self: self.decided)
    @rule(count=st.integers(1, 5))
    def hear_metadata(self, count: int) -> None:
        """Apply so many decisions at once, as ``MetadataApplier`` does."""
        before, self.image = self.image, self.decided[:count][-1]
        del self.decided[:count]
        state, needed = self.state(self.image), min_insync_replicas(self.image, TOPIC)
        if state != self.state(before):
            self.observe(self.leader.updated(state, needed, self.log, self.now_ms))
        if needed != min_insync_replicas(before, TOPIC):
            self.observe(self.leader.configured(needed, self.now_ms))
        for broker_id in FOLLOWERS:
            if self.image.brokers[broker_id] != before.brokers[broker_id]:
                self.observe(
                    self.leader.broker_changed(broker_id, self.status(broker_id), self.now_ms)
                )

    # --------------------------------------------------------------------- the controller

    @precondition(lambda self: self.proposal is not None)
    @rule(is_repeated=st.booleans())
    def decide_on_the_proposal(self, is_repeated: bool) -> None:
        """An answer may be lost. Then the same request is sent again."""
        proposal = self.proposal
        assert proposal is not None
        topic = self.image.topic(TOPIC)
        assert topic is not None
        epoch = self.image.brokers[LEADER].broker_epoch
        asked = pb.AlterPartitionRequest(broker_id=LEADER, broker_epoch=epoch)
        partition = asked.partitions.add(
            topic_id=topic.topic_id,
            partition=0,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch,
            leader_recovery_state=RECOVERED,
        )
        for broker_id, broker_epoch in proposal.isr:
            known = self.image.brokers[broker_id].broker_epoch if broker_epoch < 0 else broker_epoch
            partition.isr.add(broker_id=broker_id, broker_epoch=known)
        self.copies.append(asked)
        response = self.controller.do(lambda context: isr.alter_partitions(context, asked))
        self.note_decision()
        (answer,) = response.partitions
        if not is_repeated:
            self.proposal = None
            code = ErrorCode(answer.error)
            partition_epoch = -1 if code else answer.partition_epoch
            self.answers.append((proposal, IsrAnswer(code, partition_epoch)))

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def decide_on_a_copy_that_comes_late(self, data: st.DataObject) -> None:
        """Nobody gets its answer."""
        asked = data.draw(st.sampled_from(self.copies))
        self.controller.do(lambda context: isr.alter_partitions(context, asked))
        self.note_decision()

    @rule(value=st.integers(1, 3), of_topic=st.booleans())
    def change_min_insync_replicas(self, value: int, of_topic: bool) -> None:
        """Change the topic's value, or change the cluster's and remove the topic's own."""
        change = admin.AlterConfigsRequest()
        resource = change.resources.add()
        resource.resource.type = ConfigResourceType.TOPIC
        resource.resource.name = TOPIC
        entry = resource.changes.add(name="min.insync.replicas")
        if of_topic:
            entry.value = str(value)
        else:
            resource = change.resources.add()
            resource.resource.type = ConfigResourceType.BROKER
            resource.changes.add(name="min.insync.replicas", value=str(value))
        self.controller.do(lambda context: configs.alter_configs(context, change))
        self.note_decision()

    @rule(broker_id=st.sampled_from(FOLLOWERS))
    def fence_or_unfence(self, broker_id: int) -> None:
        if self.controller.image.brokers[broker_id].fenced:
            self.controller.heartbeat(broker_id)
        else:
            self.controller.fence(broker_id)
        self.note_decision()

    # -------------------------------------------------------------------------- what holds

    @invariant()
    def whoever_may_be_elected_has_everything_committed(self) -> None:
        state, committed = self.state(self.controller.image), self.leader.high_watermark
        for member in {*state.isr, *state.elr} - {LEADER}:
            assert self.ends[member] >= committed, (member, state, committed)

    @invariant()
    def the_leader_goes_by_the_metadata_it_has_applied(self) -> None:
        assert self.leader.state == self.state(self.image)
        assert self.leader.min_insync == min(min_insync_replicas(self.image, TOPIC), 3)


TestLeaderAndController = LeaderAndController.TestCase
TestLeaderAndController.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
