"""Groups with members of both protocols."""

from __future__ import annotations

from typing import Any

from stele.errors import ErrorCode
from tests.support.classic_clients import ClassicClient, act_all
from tests.support.consumer_protocol import Cluster, Consumer, ConsumerBench

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
AGAIN = ErrorCode.REBALANCE_IN_PROGRESS
T = Cluster().id_of("t")


def bench(**config: Any) -> ConsumerBench:
    made = ConsumerBench(**{"group_initial_rebalance_delay_ms": 0, **config})
    made.take(made.machine.loaded(made.now))
    return made


def check_shared(made: ConsumerBench, *found: ClassicClient | Consumer) -> None:
    owned = [each.owned for each in found]
    assert sum(map(len, owned)) == len(frozenset().union(*owned))
    assert frozenset().union(*owned) == made.cluster.pairs_of({"t"})
    assert all(owned)


def of_type(made: ConsumerBench) -> str:
    return "consumer" if made.listed(types=("consumer",)) else "classic"


def settled(made: ConsumerBench, count: int = 2, **options: Any) -> list[ClassicClient]:
    found = [ClassicClient(made, **options) for _ in range(count)]
    act_all(*found)
    check_shared(made, *found)
    assert of_type(made) == "classic"
    return found


def mixed(made: ConsumerBench, **options: Any) -> tuple[list[ClassicClient], Consumer]:
    """A settled group with two classic members and one of the consumer protocol."""
    classic, consumer = settled(made, **options), Consumer(made, "new")
    act_all(*classic, consumer)
    check_shared(made, *classic, consumer)
    assert of_type(made) == "consumer"
    return classic, consumer
