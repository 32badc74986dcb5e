"""Administration of groups while their coordinators move, load and die, on virtual time."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from stele.admin import coordinators
from stele.admin.coordinators import Coordinator
from stele.admin.group_lag import PartitionLag, lags
from stele.admin.groups import (
    DEAD,
    CommittedOffset,
    GroupDescription,
    MemberDescription,
    assigned_partitions,
)
from stele.errors import ApiError, BulkError, ErrorCode, UnreachableError
from stele.ids import TopicPartition
from stele.wire.v1 import groups_pb2 as pb
from tests.support.stele import FakeCluster, Stage, on_stage

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def assignment(*topics: tuple[str, Iterable[int]], version: int = 0) -> bytes:
    """A ConsumerProtocolAssignment without data of the assignor."""
    data = struct.pack(">hi", version, len(topics))
    for name, partitions in topics:
        numbers = list(partitions)
        data += struct.pack(">h", len(name.encode())) + name.encode()
        data += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return data + struct.pack(">i", -1)


class FakeGroups:
    """The groups of a fake cluster. Every broker says who coordinates a group."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.coordinators: dict[str, int] = {}
        self.offsets: dict[str, dict[TopicPartition, int]] = {}
        self.with_members: set[str] = set()
        self.believed: dict[str, int] = {}  # what brokers say of a group that has moved
        self.faults: deque[ErrorCode] = deque()  # of the next requests to coordinators
        self.asked: list[tuple[str, int]] = []  # method and broker
        for name in (
            *("FindCoordinator", "ListGroups", "DescribeGroups", "DeleteGroups"),
            *("OffsetFetch", "OffsetCommit", "OffsetDelete"),
        ):
            cluster.others[name] = self._answerer(name)

    def add(self, group: str, coordinator: int, **offsets: int) -> None:
        """``offsets``: of the partition 0 of topics."""
        self.coordinators[group] = coordinator
        self.offsets[group] = {TopicPartition(name, 0): each for name, each in offsets.items()}

    def _answerer(self, name: str):  # type: ignore[no-untyped-def]
        def answer(broker: int, data: bytes) -> Message:
            self.asked.append((name, broker))
            request = getattr(pb, f"{name}Request").FromString(data)
            response: Message = getattr(self, f"_{name}")(broker, request)
            return response

        return answer

    def _FindCoordinator(  # noqa: N802 - the method's name
        self, broker: int, request: pb.FindCoordinatorRequest
    ) -> pb.FindCoordinatorResponse:
        response = pb.FindCoordinatorResponse()
        for group in request.groups:
            known = self.believed.get(group, self.coordinators.get(group, 1))
            each = response.coordinators.add(group=group, broker_id=known)
            each.grpc_host, each.grpc_port = "127.0.0.1", 9100 + known
            if not self.cluster.alive[known]:
                each.error, each.message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "it is moving"
        return response

    def _error(self, broker: int, group: str) -> ErrorCode:
        if self.faults:
            return self.faults.popleft()
        if self.coordinators.get(group, 1) != broker:
            self.believed.pop(group, None)
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def _ListGroups(  # noqa: N802
        self, broker: int, request: pb.ListGroupsRequest
    ) -> pb.ListGroupsResponse:
        error = self.faults.popleft() if self.faults else ErrorCode.NONE
        response = pb.ListGroupsResponse(error=error)
        for group, coordinator in self.coordinators.items():
            if coordinator == broker and not error:
                state = "Stable" if group in self.with_members else "Empty"
                response.groups.add(
                    group=group, protocol_type="consumer", state=state, type="classic"
                )
        return response

    def _DescribeGroups(  # noqa: N802
        self, broker: int, request: pb.DescribeGroupsRequest
    ) -> pb.DescribeGroupsResponse:
        response = pb.DescribeGroupsResponse()
        for group in request.groups:
            each = response.groups.add(group=group, error=self._error(broker, group))
            each.state = "Empty" if group in self.coordinators else DEAD
            if group in self.with_members:
                each.state, each.protocol_type, each.protocol = "Stable", "consumer", "range"
                each.members.add(
                    member_id="m",
                    client_id="c",
                    host="/h",
                    assignment=assignment(("t", [1, 0])),
                )
                each.members.add(member_id="idle", client_id="c", host="/h", group_instance_id="i")
        return response

    def _DeleteGroups(  # noqa: N802
        self, broker: int, request: pb.DeleteGroupsRequest
    ) -> pb.DeleteGroupsResponse:
        response = pb.DeleteGroupsResponse()
        for group in request.groups:
            error = self._error(broker, group)
            if not error and group not in self.coordinators:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif not error and group in self.with_members:
                error = ErrorCode.NON_EMPTY_GROUP
            elif not error:
                del self.coordinators[group]
            response.groups.add(group=group, error=error)
        return response

    def _OffsetFetch(  # noqa: N802
        self, broker: int, request: pb.OffsetFetchRequest
    ) -> pb.OffsetFetchResponse:
        assert request.require_stable
        response = pb.OffsetFetchResponse(error=self._error(broker, request.group))
        for name, offset in self.offsets.get(request.group, {}).items():
            response.partitions.add(
                topic=name.topic,
                partition=name.partition,
                offset=offset,
                leader_epoch=-1 if offset == 0 else 4,
                metadata="m",
            )
        return response

    def _OffsetCommit(  # noqa: N802
        self, broker: int, request: pb.OffsetCommitRequest
    ) -> pb.OffsetCommitResponse:
        assert not request.HasField("generation")
        response = pb.OffsetCommitResponse(error=self._error(broker, request.group))
        for each in request.partitions if not response.error else ():
            error = ErrorCode.NONE
            if each.topic != "t":
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif request.group in self.with_members:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                name = TopicPartition(each.topic, each.partition)
                self.offsets.setdefault(request.group, {})[name] = each.offset
            response.partitions.add(topic=each.topic, partition=each.partition, error=error)
        return response

    def _OffsetDelete(  # noqa: N802
        self, broker: int, request: pb.OffsetDeleteRequest
    ) -> pb.OffsetDeleteResponse:
        response = pb.OffsetDeleteResponse(error=self._error(broker, request.group))
        for topic in request.topics if not response.error else ():
            for partition in topic.partitions:
                self.offsets[request.group].pop(TopicPartition(topic.topic, partition), None)
                response.partitions.add(topic=topic.topic, partition=partition)
        return response


@on_stage
async def test_groups_of_all_brokers_are_listed_and_described(stage: Stage) -> None:
    groups = FakeGroups(stage.cluster)
    for number, name in enumerate("cab"):
        groups.add(name, number + 1)
    groups.with_members.add("a")
    async with stage.admin() as admin:
        assert [each.group_id for each in await admin.list_groups()] == ["a", "b", "c"]
        groups.asked.clear()
        found = await admin.describe_groups(["b", "a", "c", "nope", "a"])
        assert [(each.group_id, each.state) for each in found] == [
            ("b", "Empty"),
            ("a", "Stable"),
            ("c", "Empty"),
            ("nope", DEAD),
        ]
        assert found[1].coordinator == (2, "127.0.0.1", 9102)
        assert found[1].members == (
            MemberDescription("m", None, "c", "/h", (T0, T1)),
            MemberDescription("idle", "i", "c", "/h", ()),
        )
        # One look-up for all, and one request for each coordinator.
        assert [name for name, _ in groups.asked].count("FindCoordinator") == 1
        assert [name for name, _ in groups.asked].count("DescribeGroups") == 3


@on_stage
async def test_groups_of_every_kind_are_described(stage: Stage) -> None:
    consumers = pb.DescribeGroupsResponse.Group(
        group="new",
        type="consumer",
        state="Reconciling",
        protocol_type="consumer",
        protocol="uniform",
        group_epoch=7,
        assignment_epoch=6,
    )
    consumers.members.add(
        member_id="m",
        client_id="c",
        host="/h",
        member_epoch=5,
        assigned=[{"topic": "t", "partitions": [1, 0]}],
        target=[{"topic": "t", "partitions": [0]}, {"topic": "s", "partitions": [0]}],
    )
    consumers.members.add(member_id="old", is_classic=True)
    workers = pb.DescribeGroupsResponse.Group(
        group="connect", type="classic", state="Stable", protocol_type="connect"
    )
    workers.members.add(member_id="w", assignment=assignment(("t", [0])))

    FakeGroups(stage.cluster)
    told = pb.DescribeGroupsResponse(groups=[consumers, workers])
    stage.cluster.others["DescribeGroups"] = lambda broker, request: told
    async with stage.admin() as admin:
        new, connect = await admin.describe_groups(["new", "connect"])
    assert (new.type, new.protocol, new.group_epoch, new.assignment_epoch) == (
        *("consumer", "uniform", 7, 6),
    )
    assert new.members == (
        MemberDescription(
            *("m", None, "c", "/h", (T0, T1)), 5, (TopicPartition("s", 0), T0), False
        ),
        MemberDescription("old", None, "", "", (), 0, (), True),
    )
    assert (connect.type, connect.group_epoch, connect.assignment_epoch) == (
        *("classic", None, None),
    )
    assert connect.members == (MemberDescription("w", None, "", "", ()),)


@on_stage
async def test_offsets_are_listed_changed_and_deleted(stage: Stage) -> None:
    groups = FakeGroups(stage.cluster)
    groups.add("g", 2, t=5, s=0)
    async with stage.admin() as admin:
        assert await admin.list_group_offsets("g") == {
            TopicPartition("s", 0): CommittedOffset(0, None, "m"),
            T0: CommittedOffset(5, 4, "m"),
        }
        await admin.alter_group_offsets("g", {("t", 0): 7, T1: 8})
        await admin.delete_group_offsets("g", [("s", 0)])
        assert groups.offsets["g"] == {T0: 7, T1: 8}
        await admin.alter_group_offsets("new", {T0: 1})
        assert groups.offsets["new"] == {T0: 1}
        await admin.delete_groups(["g"])
        assert "g" not in groups.coordinators


@on_stage
async def test_refusals_are_reported_by_group_and_partition(stage: Stage) -> None:
    groups = FakeGroups(stage.cluster)
    groups.add("live", 1)
    groups.add("idle", 2)
    groups.with_members.add("live")
    async with stage.admin() as admin:
        with pytest.raises(BulkError, match="group 'live': the group has members") as refused:
            await admin.delete_groups(["live", "idle", "nope"])
        assert {name: each.code for name, each in refused.value.failed.items()} == {
            "live": ErrorCode.NON_EMPTY_GROUP,
            "nope": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert refused.value.succeeded == ["idle"]
        with pytest.raises(BulkError, match="t-0: the group has members: only they commit"):
            await admin.alter_group_offsets("live", {T0: 7})
        with pytest.raises(BulkError) as refused:
            await admin.alter_group_offsets("new", {T0: 7, ("u", 0): 1})
        assert list(refused.value.failed) == ["u-0"]
        assert refused.value.succeeded == [T0]
        groups.faults.append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(ApiError, match="group 'live'") as forbidden:
            await admin.list_group_offsets("live")
        assert forbidden.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


@on_stage
async def test_a_coordinator_that_loads_is_waited_for_and_told(stage: Stage) -> None:
    groups = FakeGroups(stage.cluster)
    groups.add("g", 2, t=5)
    async with stage.admin() as admin:
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        groups.faults.extend([loading] * 6)
        assert len(await admin.list_group_offsets("g")) == 1
        assert any("group 'g': the coordinator is still loading" in e for e in stage.waits)
        groups.faults.extend([loading] * 6)
        assert len(await admin.list_groups()) == 1
        groups.faults.extend([loading] * 1000)
        with pytest.raises(ApiError) as refused:
            await admin.describe_groups(["g"])
        assert refused.value.code is loading


@on_stage
async def test_a_coordinator_that_moved_is_found_again(stage: Stage) -> None:
    groups = FakeGroups(stage.cluster)
    groups.add("g", 2, t=5)
    async with stage.admin() as admin:
        await admin.list_group_offsets("g")
        groups.coordinators["g"] = 3
        await admin.alter_group_offsets("g", {T0: 6})
        assert groups.asked[-1] == ("OffsetCommit", 3)
        # Brokers that do not know of it yet name the one before.
        groups.coordinators["g"] = 1
        groups.believed["g"] = 3
        await admin.alter_group_offsets("g", {T0: 7})
        assert groups.offsets["g"] == {T0: 7}


@on_stage
async def test_a_coordinator_that_died_is_replaced(stage: Stage) -> None:
    groups = FakeGroups(stage.cluster)
    groups.add("g", 2, t=5)
    groups.add("h", 3)
    async with stage.admin(default_api_timeout_ms=5000) as admin:
        await admin.list_group_offsets("g")
        stage.cluster.kill(2)
        with pytest.raises(ApiError, match="it is moving"):
            await admin.describe_groups(["g", "h"])
        groups.coordinators["g"] = 1
        assert [each.state for each in await admin.describe_groups(["g", "h"])] == ["Empty"] * 2
        assert [each.group_id for each in await admin.list_groups()] == ["g", "h"]
        for broker in (1, 3):
            stage.cluster.kill(broker)
        with pytest.raises(UnreachableError):
            await admin.list_group_offsets("g")


# ------------------------------------------------------------------------------- lags


def test_lags_of_what_is_committed_and_of_what_is_read() -> None:
    names = [TopicPartition("t", number) for number in range(4)]
    member = MemberDescription("m", None, "c", "/h", (names[1], names[2]))
    group = GroupDescription("g", "Stable", "consumer", "range", Coordinator(1, "h", 1), (member,))
    found = lags(
        group,
        {
            names[0]: CommittedOffset(5, 3, ""),
            names[1]: CommittedOffset(7, 3, ""),
            names[3]: CommittedOffset(9, 3, ""),
        },
        {names[0]: 8, names[1]: 7, names[2]: 3},
    )
    assert found == [
        PartitionLag(names[0], CommittedOffset(5, 3, ""), 8, None),
        PartitionLag(names[1], CommittedOffset(7, 3, ""), 7, member),
        PartitionLag(names[2], None, 3, member),
        PartitionLag(names[3], CommittedOffset(9, 3, ""), None, None),
    ]
    assert [each.lag for each in found] == [3, 0, None, None]


@on_stage
async def test_lags_are_asked_for_where_there_is_a_leader(stage: Stage) -> None:
    groups = FakeGroups(stage.cluster)
    groups.add("g", 2, t=5, s=0, gone=1)
    groups.add("h", 1, t=0)
    stage.cluster.create("t", 2)
    stage.cluster.create("s").partitions[0].leader = -1
    stage.cluster.partition("t").end_offset = 9
    async with stage.admin() as admin:
        found = await admin.group_lags(await admin.describe_groups(["g", "h", "nope"]))
        assert [(*each.partition, each.lag) for each in found["g"]] == [
            ("gone", 0, None),
            ("s", 0, None),
            ("t", 0, 4),
        ]
        assert [each.log_end_offset for each in found["h"]] == [9]
        assert found["nope"] == []
        assert await admin.group_lags([]) == {}


@on_stage
async def test_many_groups_are_described_in_several_requests(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "IDS_A_REQUEST", 2)

    groups = FakeGroups(stage.cluster)
    for name in "abcde":
        groups.add(name, 1)
    async with stage.admin() as admin:
        found = await admin.describe_groups("edcba")
        assert [each.group_id for each in found] == [*"edcba"]
        assert [name for name, _ in groups.asked].count("DescribeGroups") == 3


# --------------------------------------------------------------------------- assignments

topics = st.lists(
    st.tuples(st.text(max_size=5), st.lists(st.integers(0, 99), max_size=4)), max_size=4
)


@given(topics, st.integers(0, 3))
def test_assignments_are_read(wanted: list[tuple[str, list[int]]], version: int) -> None:
    expected = sorted(TopicPartition(name, each) for name, numbers in wanted for each in numbers)
    assert list(assigned_partitions(assignment(*wanted, version=version))) == expected


@given(st.binary(max_size=60))
def test_what_is_no_assignment_has_no_partitions(data: bytes) -> None:
    assert isinstance(assigned_partitions(data), tuple)


def test_assignments_that_end_early() -> None:
    data = assignment(("topic", [0, 1]))
    for end in range(len(data) - 4):
        assert assigned_partitions(data[:end]) == ()
    assert assigned_partitions(struct.pack(">hi", 0, 2**31 - 1)) == ()
    assert assigned_partitions(struct.pack(">hi", -1, 0)) == ()
    assert assigned_partitions(struct.pack(">hihh", 0, 1, -5, 0)) == ()
