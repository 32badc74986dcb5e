"""The laws of what brokers believe of themselves and how they stop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from broker.membership.identity import NO_EPOCH
from broker.membership.lifecycle import BrokerState
from chaos.sim.laws.broker_standings import BrokersKnowTheirStanding
from chaos.sim.laws.orderly_stops import PATIENCE_S, StopsAreAskedFor
from tests.support.law_bench import LawBench, image


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


def stands(
    bench: LawBench,
    state: BrokerState,
    *,
    epoch: int = 101,
    has_lease: bool = False,
    serving: bool = True,
) -> None:
    """Broker 1 runs and is in this state."""
    bench.brokers[1].node.broker = SimpleNamespace(
        has_begun=True,
        state=state,
        serving=serving and state is not BrokerState.SHUTTING_DOWN,
        lease_valid=has_lease,
        replicas=SimpleNamespace(broker_epoch=epoch, hosted=SimpleNamespace(by_id={})),
    )
    bench.scene.look_at_nodes([bench.sim_node(1)])


# ------------------------------------------------------------------------ standings


@pytest.mark.parametrize(
    ("state", "may_lease"),
    [
        (BrokerState.STARTING, False),
        (BrokerState.RECOVERY, False),
        (BrokerState.RUNNING, True),
        (BrokerState.PENDING_CONTROLLED_SHUTDOWN, True),
        (BrokerState.SHUTTING_DOWN, False),
    ],
)
def test_only_a_registered_broker_that_is_not_fenced_has_a_lease(
    bench: LawBench, state: BrokerState, may_lease: bool
) -> None:
    law = BrokersKnowTheirStanding()
    stands(bench, state, has_lease=True)
    assert bool(bench.broken(law)) is not may_lease
    stands(bench, state)
    assert not bench.broken(law)
    assert law.looked == 2


@pytest.mark.parametrize("state", [BrokerState.RECOVERY, BrokerState.RUNNING])
def test_who_calls_itself_registered_has_an_epoch(bench: LawBench, state: BrokerState) -> None:
    law = BrokersKnowTheirStanding()
    stands(bench, state, epoch=NO_EPOCH)
    assert bench.broken(law) == [f"broker 1 is {state.value}, and was never registered"]
    stands(bench, BrokerState.STARTING, epoch=NO_EPOCH)
    assert not bench.broken(law)


def test_a_broker_that_has_not_begun_is_not_asked(bench: LawBench) -> None:
    law = BrokersKnowTheirStanding()
    bench.brokers[1].node.broker = SimpleNamespace(has_begun=False)
    assert not bench.broken(law)
    assert law.looked == 0


# ------------------------------------------------------------------------ stops


@pytest.fixture
def law(bench: LawBench) -> StopsAreAskedFor:
    """Broker 1 runs, and is registered with epoch 101."""
    bench.commit(image(1))
    found = StopsAreAskedFor(bench.scene)
    stands(bench, BrokerState.RUNNING)
    assert not bench.broken(found)
    return found


def wait(bench: LawBench, seconds: float) -> None:
    bench.simulation.run(asyncio.sleep(seconds))


def test_a_broker_that_stops_at_once_breaks_it(bench: LawBench, law: StopsAreAskedFor) -> None:
    stands(bench, BrokerState.SHUTTING_DOWN)
    (report,) = bench.broken(law)
    assert report.endswith("and no controller has fenced it")
    assert not bench.broken(law)
    assert law.looked == 1


def test_one_that_was_fenced_may_stop(bench: LawBench, law: StopsAreAskedFor) -> None:
    bench.commit(image(2, fenced=[1]))
    stands(bench, BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    assert not bench.broken(law)
    stands(bench, BrokerState.SHUTTING_DOWN)
    assert not bench.broken(law)
    assert law.looked == 1


@pytest.mark.parametrize(("waits_s", "breaks"), [(PATIENCE_S - 0.1, True), (2.0, False)])
def test_one_that_has_waited_in_vain_may_stop(
    bench: LawBench, law: StopsAreAskedFor, waits_s: float, breaks: bool
) -> None:
    stands(bench, BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    assert not bench.broken(law)
    wait(bench, waits_s)
    stands(bench, BrokerState.PENDING_CONTROLLED_SHUTDOWN, serving=False)
    assert bool(bench.broken(law)) is breaks


def test_one_that_fails_or_is_not_registered_has_nothing_to_ask_for(
    bench: LawBench, law: StopsAreAskedFor
) -> None:
    bench.brokers[1].failure = "OSError"
    stands(bench, BrokerState.SHUTTING_DOWN)
    assert not bench.broken(law)
    bench.brokers[1].failure = ""
    stands(bench, BrokerState.RUNNING, epoch=99)
    assert not bench.broken(law)
    stands(bench, BrokerState.SHUTTING_DOWN, epoch=99)
    assert not bench.broken(law)
    assert law.looked == 0
