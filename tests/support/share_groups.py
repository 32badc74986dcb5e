"""Share groups to play with: members that obey their answers, and a share coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.share.types import (
    Initialization,
    InitializedRequest,
    NewStatesAnswer,
    NewStatesRequest,
    ShareDeletionAnswer,
    ShareDescribeAnswer,
    ShareDescribeRequest,
    ShareHeartbeatAnswer,
    ShareHeartbeatRequest,
    SharePartitionsAnswer,
    SharePartitionsRequest,
    StatesDeletedRequest,
    StatesDeletionRequest,
)
from stele.errors import ErrorCode
from tests.support.consumer_protocol import ConsumerBench, Pairs, pairs
from tests.support.coordinators import Heard
from tests.support.groups import told


class ShareBench(ConsumerBench):
    """Has the share coordinator's part: it initializes what heartbeats ask for."""

    initializes = True

    def ask_share_beat(self, member_id: str, epoch: int, *topics: str, **options: Any) -> Heard:
        options = {"client_id": "c", "client_host": "/h", **options}
        names = topics or None
        request = ShareHeartbeatRequest("g", member_id, epoch, topic_names=names, **options)
        heard = self.ask(request)
        for answer in heard.told:
            is_answer = isinstance(answer, ShareHeartbeatAnswer)
            if is_answer and answer.to_initialize is not None and self.initializes:
                self.initialize(answer.to_initialize)
        return heard

    def share_beat(
        self, member_id: str, epoch: int, *topics: str, **options: Any
    ) -> ShareHeartbeatAnswer:
        return told(self.ask_share_beat(member_id, epoch, *topics, **options), ShareHeartbeatAnswer)

    def initialize(self, wanted: Initialization) -> Heard:
        return self.initialize_all(wanted.partitions)

    def initialize_all(self, partitions: Partitions) -> Heard:
        return self.ask(InitializedRequest("g", partitions))

    def new_states(self, partitions: Partitions) -> NewStatesAnswer:
        return told(self.ask(NewStatesRequest("g", partitions)), NewStatesAnswer)

    def delete_states(self, *topic_ids: bytes) -> ShareDeletionAnswer:
        request = StatesDeletionRequest("g", frozenset(topic_ids))
        return told(self.ask(request), ShareDeletionAnswer)

    def states_deleted(self, *topic_ids: bytes, over: int | None = None) -> Heard:
        return self.ask(StatesDeletedRequest("g", frozenset(topic_ids), over))

    def share_partitions(self) -> Partitions:
        answer = told(self.ask(SharePartitionsRequest("g")), SharePartitionsAnswer)
        assert answer.partitions is not None
        return answer.partitions

    def described_share(self) -> ShareDescribeAnswer:
        return told(self.ask(ShareDescribeRequest("g")), ShareDescribeAnswer)


@dataclass
class ShareClient:
    """A member. It has what its last answer with an assignment said."""

    bench: ShareBench
    member_id: str
    topics: tuple[str, ...] = ("t",)
    epoch: int = 0
    owned: Pairs = frozenset()
    is_member: bool = False

    def join(self) -> ErrorCode:
        self.epoch, self.owned, self.is_member = 0, frozenset(), True
        return self.beat()

    def beat(self, *, is_lost: bool = False) -> ErrorCode:
        """Sends its topics when it joins, as clients do."""
        topics = self.topics if self.epoch == 0 else ()
        heard = self.bench.ask_share_beat(self.member_id, self.epoch, *topics)
        if is_lost or not heard.told:
            return ErrorCode.REQUEST_TIMED_OUT
        answer = heard.told[0]
        if isinstance(answer, ErrorCode):
            return answer
        if answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, frozenset()
        elif answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self.is_member = False
        elif answer.error is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assigned is not None:
                self.owned = pairs(answer.assigned)
        error: ErrorCode = answer.error
        return error

    def leave(self) -> None:
        self.bench.ask_share_beat(self.member_id, -1)
        self.is_member = False
