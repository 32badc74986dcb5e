"""How a broker finds the active controller."""

from __future__ import annotations

import asyncio

import pytest

from broker.membership.controller_client import ControllerClient
from raft.api import LeaderAndEpoch
from runtime.config.addresses import CONTROLLER, NamedAddress
from stele.addresses import Address
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError
from stele.wire.v1.admin_pb2 import CreateTopicsRequest, CreateTopicsResponse
from stele.wire.v1.controller_pb2 import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    ReadIndexRequest,
)
from stele.wire.v1.raft_pb2 import AddVoterRequest
from stele.world import RpcCode, RpcError
from tests.support.broker_edges import FakeChannel, FakeNetwork
from tests.support.timing import LoopClock
from tests.support.worlds import virtual
from world.network import Peer, Service

METHOD = "/stele.v1.Controller/AllocateProducerIds"
CREATION = "/stele.v1.Admin/CreateTopics"
VOTERS = {1: ("c1", 9093), 2: ("c2", 9093), 3: ("c3", 9093)}


class _Network(FakeNetwork):
    """Remembers the channels that were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: list[tuple[tuple[str, int], FakeChannel]] = []

    def channel(self, address: Address, client_id: str | None = None) -> FakeChannel:
        channel = super().channel(address, client_id)
        self.channels.append((address[:2], channel))
        return channel


class _Controllers:
    """Three controllers on one network. ``active`` answers, and the others name it."""

    def __init__(self) -> None:
        self.network = _Network()
        self.addresses = dict(VOTERS)
        self.active: int | None = 1
        self.known = LeaderAndEpoch(1, 1)
        self.asked: list[int] = []
        self.answers: list[AllocateProducerIdsResponse] = []  # the next ones, whoever is asked
        for voter_id in VOTERS:
            self.start(voter_id)
        self.client = ControllerClient(
            cluster_id="cluster",
            connectors={CONTROLLER: self.network},
            clock=LoopClock(),
            endpoint=self.address_of,
            leader=lambda: self.known,
        )

    def address_of(self, controller_id: int) -> NamedAddress | None:
        assert isinstance(controller_id, int)
        address = self.addresses.get(controller_id)
        return None if address is None else NamedAddress(CONTROLLER, *address)

    def start(self, voter_id: int) -> None:
        async def allocate(payload: bytes, _: Peer) -> bytes:
            self.asked.append(voter_id)
            if self.answers:
                return self.answers.pop(0).SerializeToString()
            if voter_id != self.active:
                return AllocateProducerIdsResponse(
                    error=ErrorCode.NOT_CONTROLLER,
                    leader_id=-1 if self.active is None else self.active,
                ).SerializeToString()
            return AllocateProducerIdsResponse(first=1000, count=1000).SerializeToString()

        self.network.services[VOTERS[voter_id]] = Service(unary={METHOD: allocate})

    def silence(self, voter_id: int) -> None:
        """Let a controller accept requests and never answer."""

        async def silent(payload: bytes, _: Peer) -> bytes:
            self.asked.append(voter_id)
            await asyncio.sleep(1000)
            return b""

        self.network.services[VOTERS[voter_id]].unary[METHOD] = silent

    async def ask(self, timeout_s: float = 10.0) -> AllocateProducerIdsResponse:
        return await self.client.allocate_producer_ids(
            AllocateProducerIdsRequest(broker_id=4), timeout_s=timeout_s
        )

    async def ask_till_known(self, timeout_s: float = 10.0) -> AllocateProducerIdsResponse:
        """Ask again until the outcome is known."""
        return await self.client.call(
            METHOD,
            AllocateProducerIdsRequest(broker_id=4),
            AllocateProducerIdsResponse,
            timeout_s=timeout_s,
            repeat_unknown=True,
        )


def _refusal(error: ErrorCode, leader_id: int = -1) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error=error, leader_id=leader_id)


@virtual
async def test_asks_the_leader_of_the_quorum() -> None:
    controllers = _Controllers()
    assert (await controllers.ask()).first == 1000
    assert controllers.asked == [1]


@virtual
async def test_follows_the_leader_that_a_refusal_names() -> None:
    controllers = _Controllers()
    controllers.active = 3
    before = asyncio.get_running_loop().time()
    assert (await controllers.ask()).first == 1000
    assert controllers.asked == [1, 3]
    assert asyncio.get_running_loop().time() == before


@virtual
async def test_waits_for_an_election_and_tries_again_at_once_when_it_is_over() -> None:
    controllers = _Controllers()
    controllers.known = LeaderAndEpoch(None, 1)
    loop = asyncio.get_running_loop()

    def elect() -> None:
        controllers.active, controllers.known = 2, LeaderAndEpoch(2, 2)
        controllers.client.on_leader_change()

    loop.call_later(0.7, elect)
    assert (await controllers.ask()).count == 1000
    assert controllers.asked == [2]
    assert loop.time() == pytest.approx(0.7)


@virtual
async def test_a_controller_that_comes_back_is_found() -> None:
    controllers = _Controllers()
    del controllers.network.services[VOTERS[1]]
    asyncio.get_running_loop().call_later(1.0, controllers.start, 1)
    assert (await controllers.ask()).count == 1000
    assert asyncio.get_running_loop().time() < 1.3


@virtual
async def test_a_refusal_of_another_cluster_is_no_answer_and_its_leader_is_nobody() -> None:
    controllers = _Controllers()
    controllers.answers = [_refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, leader_id=2)]
    assert (await controllers.ask()).first == 1000
    assert controllers.asked == [1, 1]
    controllers.answers = [_refusal(ErrorCode.INCONSISTENT_CLUSTER_ID)] * 100
    with pytest.raises(ApiError, match="another cluster answers at the address") as caught:
        await controllers.ask(timeout_s=1.0)
    assert not isinstance(caught.value, OutcomeUnknownError)


@virtual
async def test_requests_name_their_cluster() -> None:
    """A request that names another cluster by its client's will is sent as it is, and its refusal
    is the answer."""

    controllers = _Controllers()
    read, forwarded = ReadIndexRequest(), CreateTopicsRequest()
    forwarded.on_behalf_of.principal = "User:alice"
    named = AddVoterRequest(cluster_id="another")
    named.on_behalf_of.principal = "User:alice"
    for request in (read, forwarded, named):
        controllers.answers = [_refusal(ErrorCode.INCONSISTENT_CLUSTER_ID)]
        answer = await controllers.client.call(METHOD, request, AllocateProducerIdsResponse)
        expected = ErrorCode.INCONSISTENT_CLUSTER_ID if request is named else ErrorCode.NONE
        assert answer.error == expected
    assert read.cluster_id == forwarded.on_behalf_of.cluster_id == "cluster"
    assert (named.cluster_id, named.on_behalf_of.cluster_id) == ("another", "cluster")


@virtual
async def test_after_an_attempt_of_unknown_outcome_a_clients_request_is_a_copy() -> None:
    controllers = _Controllers()
    marks: list[bool] = []

    def answering(*answers: ErrorCode | None) -> None:
        left = list(answers)

        async def create(payload: bytes, _: Peer) -> bytes:
            marks.append(CreateTopicsRequest.FromString(payload).on_behalf_of.repeats)
            error = left.pop(0)
            if error is None:
                raise RpcError(RpcCode.UNAVAILABLE, "the connection broke")
            return CreateTopicsResponse(error=error, leader_id=-1).SerializeToString()

        controllers.network.services[VOTERS[1]].unary[CREATION] = create

    async def ask(*answers: ErrorCode | None) -> list[bool]:
        answering(*answers)
        request = CreateTopicsRequest()
        request.on_behalf_of.principal = "User:alice"
        await controllers.client.call(CREATION, request, CreateTopicsResponse, repeat_unknown=True)
        told = list(marks)
        marks.clear()
        return told

    not_active, unknown = ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT
    assert await ask(not_active, not_active, ErrorCode.NONE) == [False, False, False]
    assert await ask(None, ErrorCode.NONE) == [False, True]
    assert await ask(unknown, not_active, ErrorCode.POLICY_VIOLATION) == [False, True, True]


@virtual
async def test_gives_up_at_the_deadline_saying_why() -> None:
    controllers = _Controllers()
    controllers.network.services.clear()
    with pytest.raises(ApiError, match="controller 1 is unavailable") as caught:
        await controllers.ask(timeout_s=3.0)
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert asyncio.get_running_loop().time() == pytest.approx(3.0)


@virtual
async def test_when_there_is_no_time_left_nobody_is_asked() -> None:
    controllers = _Controllers()
    with pytest.raises(ApiError) as caught:
        await controllers.ask(timeout_s=0.0)
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert controllers.asked == []


@virtual
async def test_two_that_name_each_other_are_no_busy_loop() -> None:
    controllers = _Controllers()
    controllers.active = None

    async def blame_two(payload: bytes, _: Peer) -> bytes:
        controllers.asked.append(1)
        return AllocateProducerIdsResponse(
            error=ErrorCode.NOT_CONTROLLER, leader_id=2
        ).SerializeToString()

    async def blame_one(payload: bytes, _: Peer) -> bytes:
        controllers.asked.append(2)
        return AllocateProducerIdsResponse(
            error=ErrorCode.NOT_CONTROLLER, leader_id=1
        ).SerializeToString()

    controllers.network.services[VOTERS[1]].unary[METHOD] = blame_two
    controllers.network.services[VOTERS[2]].unary[METHOD] = blame_one
    with pytest.raises(ApiError):
        await controllers.ask(timeout_s=1.0)
    assert len(controllers.asked) < 20


@virtual
async def test_a_silent_controller_does_not_cost_the_whole_deadline() -> None:
    controllers = _Controllers()

    controllers.silence(1)
    controllers.active = 2
    loop = asyncio.get_running_loop()
    loop.call_later(1.0, lambda: setattr(controllers, "known", LeaderAndEpoch(2, 2)))
    assert (await controllers.ask(timeout_s=30.0)).count == 1000
    assert loop.time() < 6


@virtual
async def test_a_call_refused_as_such_is_not_retried() -> None:
    controllers = _Controllers()
    controllers.network.services[VOTERS[1]].unary.clear()
    with pytest.raises(RpcError) as caught:
        await controllers.ask()
    assert caught.value.code == RpcCode.UNIMPLEMENTED

    async def garbage(payload: bytes, _: Peer) -> bytes:
        return b"\xff\xff"

    controllers.network.services[VOTERS[1]].unary[METHOD] = garbage
    with pytest.raises(RpcError, match="unreadable bytes"):
        await controllers.ask()


# ------------------------------------------------------------------------------- who is asked


def test_nobody_is_active_while_no_leader_or_no_address_is_known() -> None:
    controllers = _Controllers()
    active = [controllers.client.active_controller]
    del controllers.addresses[1]
    active.append(controllers.client.active_controller)
    controllers.known = LeaderAndEpoch(None, 1)
    active.append(controllers.client.active_controller)
    assert active == [1, None, None]


@virtual
async def test_a_leader_that_was_elected_meanwhile_is_asked_at_once() -> None:
    controllers = _Controllers()
    controllers.active = 2

    async def elect(payload: bytes, _: Peer) -> bytes:
        controllers.asked.append(1)
        controllers.known = LeaderAndEpoch(2, 2)
        return _refusal(ErrorCode.NOT_CONTROLLER).SerializeToString()

    controllers.network.services[VOTERS[1]].unary[METHOD] = elect
    assert (await controllers.ask()).count == 1000
    assert controllers.asked == [1, 2]
    assert asyncio.get_running_loop().time() == 0.0


@pytest.mark.parametrize("named", [-1, 1, 9])
@virtual
async def test_a_refusal_that_names_nobody_else_is_waited_out(named: int) -> None:
    """The refusal names no leader, the controller itself, or one whose address nobody knows."""

    controllers = _Controllers()
    controllers.answers = [_refusal(ErrorCode.NOT_CONTROLLER, named)] * 100
    loop = asyncio.get_running_loop()
    times: list[float] = []
    handler = controllers.network.services[VOTERS[1]].unary[METHOD]

    async def timed(payload: bytes, peer: Peer) -> bytes:
        times.append(loop.time())
        return await handler(payload, peer)

    controllers.network.services[VOTERS[1]].unary[METHOD] = timed
    with pytest.raises(ApiError) as caught:
        await controllers.ask(timeout_s=0.5)
    assert times == pytest.approx([0.0, 0.05, 0.15, 0.35])
    assert not isinstance(caught.value, OutcomeUnknownError)


# ------------------------------------------------------------------------------- what came of it


@virtual
async def test_who_never_answered_may_have_done_it() -> None:
    controllers = _Controllers()
    controllers.silence(1)
    controllers.active = None
    loop = asyncio.get_running_loop()
    loop.call_later(1.0, lambda: setattr(controllers, "known", LeaderAndEpoch(2, 2)))
    with pytest.raises(OutcomeUnknownError):
        await controllers.ask(timeout_s=8.0)
    assert set(controllers.asked[1:]) == {2}, "and those have refused"


@virtual
async def test_an_answer_that_does_not_know_the_outcome_is_passed_on() -> None:
    controllers = _Controllers()
    controllers.answers = [_refusal(ErrorCode.REQUEST_TIMED_OUT)]
    assert (await controllers.ask()).error == ErrorCode.REQUEST_TIMED_OUT
    assert controllers.asked == [1]


@virtual
async def test_who_has_to_know_the_outcome_asks_again() -> None:
    controllers = _Controllers()
    controllers.answers = [_refusal(ErrorCode.REQUEST_TIMED_OUT)] * 2
    assert (await controllers.ask_till_known()).count == 1000
    assert controllers.asked == [1, 1, 1]
    controllers.answers = [_refusal(ErrorCode.INVALID_REQUEST)]
    assert (await controllers.ask_till_known()).error == ErrorCode.INVALID_REQUEST
    controllers.answers = [_refusal(ErrorCode.REQUEST_TIMED_OUT)] * 100
    with pytest.raises(OutcomeUnknownError):
        await controllers.ask_till_known(timeout_s=1.0)


# ------------------------------------------------------------------------------- channels


@virtual
async def test_a_controller_has_one_channel_as_long_as_it_has_one_address() -> None:
    controllers = _Controllers()
    await controllers.ask()
    await controllers.ask()
    controllers.client.on_leader_change()
    await controllers.ask()
    ((address, channel),) = controllers.network.channels
    assert address == VOTERS[1]
    assert not channel.closed


@pytest.mark.parametrize("told", [False, True])
@virtual
async def test_a_controller_that_has_moved_is_asked_where_it_is_now(told: bool) -> None:
    controllers = _Controllers()
    await controllers.ask()
    controllers.network.services["c1b", 9093] = controllers.network.services[VOTERS[1]]
    controllers.addresses[1] = ("c1b", 9093)
    if told:
        controllers.client.on_leader_change()
        await asyncio.sleep(0)
        assert controllers.network.channels[0][1].closed
    assert (await controllers.ask()).count == 1000
    assert [address for address, _ in controllers.network.channels] == [
        VOTERS[1],
        ("c1b", 9093),
    ]
    await asyncio.sleep(0)
    assert [channel.closed for _, channel in controllers.network.channels] == [True, False]


def test_a_controller_without_an_address_cannot_be_reached() -> None:
    controllers = _Controllers()
    with pytest.raises(RpcError, match="no address is known for controller 9") as caught:
        controllers.client.stream(9, "/stele.v1.Controller/Heartbeat")
    assert caught.value.code is RpcCode.UNAVAILABLE
