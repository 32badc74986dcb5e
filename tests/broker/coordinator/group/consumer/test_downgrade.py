"""Groups that go back to the classic protocol, and groups that must not."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.group.types import (
    JoinAnswer,
    MemberProtocol,
)
from stele.errors import ErrorCode
from stele.wire.consumer_protocol import (
    Subscription,
)
from tests.support.classic_clients import ClassicClient, act_all
from tests.support.consumer_protocol import Consumer
from tests.support.groups import RANGE, told
from tests.support.mixed_groups import (
    AGAIN,
    bench,
    check_shared,
    mixed,
    of_type,
    settled,
)


def test_a_group_is_downgraded_for_a_static_member_only_if_it_may_be() -> None:
    made = bench(group_consumer_migration_policy="upgrade")
    one, consumer = ClassicClient(made, "i"), Consumer(made, "new", "j")
    act_all(one, consumer)
    again = ClassicClient(made, "j")
    act_all(one, again)
    assert of_type(made) == "consumer"
    check_shared(made, one, again)


def test_a_group_that_could_not_be_downgraded_stays_what_it_is() -> None:
    """Also when it may be later, and a static member of the classic protocol comes back."""
    made = bench(group_consumer_migration_policy="upgrade")
    one, other, consumer = ClassicClient(made), ClassicClient(made, "i"), Consumer(made, "new")
    act_all(one, other, consumer)
    consumer.leave()
    made.config = type(made.config)(group_initial_rebalance_delay_ms=0)
    made.reload()
    again = ClassicClient(made, "i")
    act_all(one, again)
    assert of_type(made) == "consumer"
    check_shared(made, one, again)


def test_a_classic_member_that_falls_silent_was_not_the_last_consumer() -> None:
    made = bench(group_consumer_migration_policy="upgrade")
    (one, _), consumer = mixed(made)
    consumer.leave()
    made.config = type(made.config)(group_initial_rebalance_delay_ms=0)
    made.reload()
    act_all(one)
    assert len(made.described_consumers().members) == 1
    assert of_type(made) == "consumer"


def test_until_a_downgraded_group_rebalances_nobody_leads_it() -> None:
    made = bench()
    one, static, consumer = ClassicClient(made), ClassicClient(made, "i"), Consumer(made, "new")
    act_all(one, static, consumer)
    before = one.generation
    consumer.leave()
    metadata = Subscription(("t",)).encode()
    heard = made.join(member_id=one.member_id, protocols=(MemberProtocol("range", metadata),))
    for each in (heard, made.join(instance="i", protocols=RANGE)):
        answer = told(each, JoinAnswer)
        assert (answer.error, answer.generation, answer.leader) == (ErrorCode.NONE, before, "")
    made.pass_time(0)
    assert made.heartbeat(one.member_id, before) is AGAIN


@pytest.mark.parametrize(
    "config",
    [
        {"group_consumer_migration_policy": "upgrade"},
        {"group_max_size": 1},
    ],
)
def test_groups_that_are_not_downgraded(config: dict[str, Any]) -> None:
    made = bench()
    classic, consumer = mixed(made)
    made.config = type(made.config)(group_initial_rebalance_delay_ms=0, **config)
    made.reload()
    consumer.leave()
    assert of_type(made) == "consumer"
    act_all(*classic)
    check_shared(made, *classic)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_group_whose_record_fits_into_no_batch_is_not_downgraded(leaves: bool) -> None:
    """The last consumer is removed all the same, and no deadline stays due."""
    made = bench()
    classic, consumer = mixed(made)
    made.batch_bytes_max = 300
    if leaves:
        assert consumer.leave().error is ErrorCode.NONE
    else:
        made.pass_time(60_000 - 1)
        assert made.machine.deadline_ms is None or made.machine.deadline_ms > made.now.monotonic_ms
    made.batch_bytes_max = 1 << 30
    assert of_type(made) == "consumer"
    assert "new" not in {each.member_id for each in made.described_consumers().members}
    if leaves:
        act_all(*classic)
        check_shared(made, *classic)


def test_a_consumer_that_falls_silent_is_the_last_one_too() -> None:
    made = bench()
    classic, _ = mixed(made)
    act_all(*classic, rounds=50)
    assert of_type(made) == "classic"
    check_shared(made, *classic)


def test_what_is_refused_changes_nothing() -> None:
    made = bench()
    classic = settled(made)
    refused = ErrorCode.NOT_ENOUGH_REPLICAS
    made.refusal = refused
    assert made.ask_join("new").told == [refused]
    made.refusal = ErrorCode.NONE
    assert of_type(made) == "classic"
    act_all(*classic)
    check_shared(made, *classic)
    assert made.heartbeat(classic[0].member_id, classic[0].generation) is ErrorCode.NONE
