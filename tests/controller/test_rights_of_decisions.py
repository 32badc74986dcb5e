"""A right is removed while its holder's change is under way. The order of the metadata log decides:
what comes after the removal is refused, also while the removal is not committed yet."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from chaos.sim.world.simulation import Simulation
from metadata.acl import CLUSTER_NAME, Operation, ResourceType
from runtime.administration import changes
from runtime.administration.acls import filter_message, message_of
from runtime.administration.changes import CHANGES, Change
from runtime.authorization.caller import ANONYMOUS
from security.authorizer.decision import Policy
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1 import metadata_pb2 as metadata
from stele.wire.v1.caller_pb2 import OnBehalfOf
from tests.support.acls import acl
from tests.support.controller_world import Controller, StubBroker
from tests.support.worlds import Scenario, gives

ANN, BOB = "User:ann", "User:bob"
RIGHTS = [
    acl(CLUSTER_NAME, Operation.ALL, principal=ANN, resource_type=ResourceType.CLUSTER),
    acl("*", Operation.ALL, principal=ANN),
    acl(BOB, Operation.CREATE_TOKENS, principal=ANN, resource_type=ResourceType.USER),
]
TOPIC = pb.ConfigResource(type=metadata.ConfigResourceType.TOPIC, name="t")

ASKED: Final[dict[Change, Any]] = {
    changes.CREATE_TOPICS: pb.CreateTopicsRequest(
        topics=[pb.NewTopic(name="t", partitions=1, replication_factor=1)]
    ),
    changes.DELETE_TOPICS: pb.DeleteTopicsRequest(names=["t"]),
    changes.CREATE_PARTITIONS: pb.CreatePartitionsRequest(
        topics=[pb.CreatePartitionsRequest.Topic(name="t", count=2)]
    ),
    changes.UNREGISTER_BROKER: pb.UnregisterBrokerRequest(broker_id=7),
    changes.ALTER_CONFIGS: pb.AlterConfigsRequest(
        resources=[pb.AlterConfigsRequest.Resource(resource=TOPIC)]
    ),
    changes.ELECT_LEADERS: pb.ElectLeadersRequest(),
    changes.ALTER_PARTITION_REASSIGNMENTS: pb.AlterPartitionReassignmentsRequest(),
    changes.UPDATE_FEATURES: pb.UpdateFeaturesRequest(),
    changes.CREATE_ACLS: pb.CreateAclsRequest(acls=[message_of(acl("z", principal=ANN))]),
    changes.DELETE_ACLS: pb.DeleteAclsRequest(
        filters=[filter_message(1, "z", 1, None, None, 1, 1)]
    ),
    changes.ALTER_USER_SCRAM_CREDENTIALS: pb.AlterUserScramCredentialsRequest(),
    changes.ALTER_CLIENT_QUOTAS: pb.AlterClientQuotasRequest(),
    changes.CREATE_DELEGATION_TOKEN: pb.CreateDelegationTokenRequest(owner=BOB),
}
"""A request that needs one of the rights."""

OF_EVERYBODY = {changes.RENEW_DELEGATION_TOKEN, changes.EXPIRE_DELEGATION_TOKEN}
"""No ACL is asked: a token has an owner and renewers."""

DENIED = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Bench:
    def __init__(self, simulation: Simulation) -> None:
        self.controller = Controller(simulation, policy=Policy(frozenset([ANONYMOUS])))
        self.broker = StubBroker(simulation, 1)

    async def ask(self, change: Change, request: Any, principal: str = "") -> Any:
        """Ask the controller directly, or as a client for which the broker asks."""
        sent = change.request()
        sent.CopyFrom(request)
        if principal:
            sent.on_behalf_of.CopyFrom(OnBehalfOf(principal=principal, address="10.1.1.1"))
        return await self.broker.call(change.method, sent, change.response)

    async def give(self) -> None:
        request = pb.CreateAclsRequest(acls=[message_of(each) for each in RIGHTS])
        answer = await self.ask(changes.CREATE_ACLS, request)
        assert [each.error for each in answer.results] == [ErrorCode.NONE] * len(RIGHTS)

    async def take(self) -> None:
        by_principal = filter_message(1, None, 1, ANN, None, 1, 1)
        answer = await self.ask(changes.DELETE_ACLS, pb.DeleteAclsRequest(filters=[by_principal]))
        assert len(answer.results[0].acls) >= len(RIGHTS)


@gives("bench")
def on_bench(scenario: Scenario) -> None:
    simulation = Simulation(1)

    async def main() -> None:
        bench = Bench(simulation)
        await bench.controller.start()
        await bench.broker.join()
        await asyncio.sleep(0.1)
        await bench.give()
        await scenario(bench)

    simulation.run(main())


def errors_of(change: Change, answer: Any) -> set[int]:
    if change.items is None or answer.error:
        return {answer.error}
    return {each.error for each in getattr(answer, change.items.results)} or {0}


def test_every_change_is_tried() -> None:
    assert {*ASKED, *OF_EVERYBODY} == set(CHANGES)


@pytest.mark.parametrize("change", ASKED, ids=lambda change: change.name)
@on_bench
async def test_what_follows_an_uncommitted_removal_is_refused(bench: Bench, change: Change) -> None:
    allowed = await bench.ask(change, ASKED[change], ANN)
    assert not errors_of(change, allowed) & DENIED
    quorum = bench.controller.quorum
    quorum.held = True
    removal = asyncio.ensure_future(bench.take())
    await asyncio.sleep(0.05)
    assert quorum.proposed, "the removal is decided, and not committed"
    before = quorum.log_end_offset
    asked = asyncio.ensure_future(bench.ask(change, ASKED[change], ANN))
    await asyncio.sleep(0.05)
    assert quorum.log_end_offset == before
    quorum.held = False
    quorum.commit()
    await removal
    assert errors_of(change, await asked) <= DENIED


@on_bench
async def test_a_right_that_is_not_committed_counts_for_what_follows_it(bench: Bench) -> None:
    """The change commits after the rule that allows it, or neither of them commits."""
    await bench.take()
    quorum = bench.controller.quorum
    quorum.held = True
    given = asyncio.ensure_future(bench.give())
    await asyncio.sleep(0.05)
    request = ASKED[changes.CREATE_ACLS]
    asked = asyncio.ensure_future(bench.ask(changes.CREATE_ACLS, request, ANN))
    await asyncio.sleep(0.05)
    assert not asked.done()
    quorum.held = False
    quorum.commit()
    await given
    assert errors_of(changes.CREATE_ACLS, await asked) == {ErrorCode.NONE}


@on_bench
async def test_a_refusal_by_a_removal_that_is_lost_is_not_told(bench: Bench) -> None:
    quorum = bench.controller.quorum
    quorum.held = True
    removal = asyncio.ensure_future(
        bench.ask(
            changes.DELETE_ACLS,
            pb.DeleteAclsRequest(filters=[filter_message(1, None, 1, ANN, None, 1, 1)]),
        )
    )
    await asyncio.sleep(0.05)
    asked = asyncio.ensure_future(bench.ask(changes.CREATE_ACLS, ASKED[changes.CREATE_ACLS], ANN))
    await asyncio.sleep(0.05)
    bench.controller.process.loop.call_soon(quorum.resign)
    assert (await removal).error == ErrorCode.REQUEST_TIMED_OUT
    assert (await asked).error == ErrorCode.NOT_CONTROLLER
