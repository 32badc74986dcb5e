"""Whose turn it is: properties against an account that is kept apart."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from runtime.kafka.turn_order import DEBT_MAX_S, QUANTUM_S, TurnOrder

COST_MAX_S = 5 * QUANTUM_S
ITEMS = [
    (user, client, number) for user in "abc" for client in ("x", "y", "z") for number in range(4)
]
Item = tuple[str, str, int]

costs = st.floats(min_value=QUANTUM_S / 20, max_value=COST_MAX_S)
repeated_costs = st.lists(costs, min_size=1, max_size=7).map(lambda few: (few * 200)[:200])


def wait(order: TurnOrder[Item], item: Item) -> None:
    order.wait(item, item[0], item[1])


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("wait"), st.sampled_from(ITEMS)),
            st.tuples(st.just("leave"), st.sampled_from(ITEMS)),
            st.tuples(st.just("next"), costs),
        ),
        max_size=60,
    )
)
def test_each_waiting_item_gets_one_turn_and_those_of_a_client_keep_their_order(
    steps: list[tuple[str, object]],
) -> None:
    order: TurnOrder[Item] = TurnOrder()
    waiting: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for what, given_ in steps:
        if what == "next":
            assert isinstance(given_, float)
            if len(order):
                served = order.next()
                assert waiting[served[:2]].pop(0) == served
                order.spent(given_)
        else:
            assert isinstance(given_, tuple)
            queue = waiting[given_[:2]]
            if what == "leave":
                order.leave(given_)
                if given_ in queue:
                    queue.remove(given_)
            elif given_ not in queue:
                wait(order, given_)
                queue.append(given_)
        assert len(order) == sum(map(len, waiting.values()))
        for queue in waiting.values():
            assert all(each in order for each in queue)


@given(
    connections=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 30), min_size=2),
    turns=repeated_costs,
)
def test_users_that_always_have_work_get_the_same_whatever_their_connections(
    connections: dict[str, int], turns: list[float]
) -> None:
    order: TurnOrder[Item] = TurnOrder()
    for user, count in connections.items():
        for number in range(count):
            wait(order, (user, "c", number))
    took = dict.fromkeys(connections, 0.0)
    for cost in turns:
        served = order.next()
        wait(order, served)
        order.spent(cost)
        took[served[0]] += cost
        assert max(took.values()) - min(took.values()) <= QUANTUM_S + 2 * COST_MAX_S


@given(
    greedy=st.integers(1, 40),
    ids=st.integers(1, 5),
    before=repeated_costs,
    after=repeated_costs,
)
def test_who_comes_anew_waits_for_one_share_of_each_other_user(
    greedy: int, ids: int, before: list[float], after: list[float]
) -> None:
    order: TurnOrder[Item] = TurnOrder()
    for number in range(greedy):
        wait(order, ("greedy", f"id-{number % ids}", number))
    for cost in before:
        served = order.next()
        wait(order, served)
        order.spent(cost)
    polite = ("polite", "c", 0)
    wait(order, polite)
    waited_s = 0.0
    for cost in after:
        served = order.next()
        if served == polite:
            break
        wait(order, served)
        order.spent(cost)
        waited_s += cost
    else:
        raise AssertionError("the polite user is never served")
    assert waited_s <= QUANTUM_S + COST_MAX_S


@given(cost=st.floats(min_value=QUANTUM_S, max_value=1.0))
def test_a_long_turn_is_paid_back_up_to_a_bound(cost: float) -> None:
    order: TurnOrder[Item] = TurnOrder()
    long, short = ("long", "c", 0), ("short", "c", 0)
    wait(order, long)
    wait(order, short)
    assert order.next() == long
    wait(order, long)
    order.spent(cost)
    between_s = 0.0
    while (served := order.next()) != long:
        wait(order, served)
        order.spent(QUANTUM_S / 4)
        between_s += QUANTUM_S / 4
        assert between_s <= DEBT_MAX_S + 3 * QUANTUM_S
    assert between_s >= min(cost, DEBT_MAX_S) - 2 * QUANTUM_S


def test_a_debt_is_remembered_while_others_wait_and_forgotten_when_nobody_does() -> None:
    order: TurnOrder[Item] = TurnOrder()
    long, short = ("long", "c", 0), ("short", "c", 0)
    wait(order, long)
    wait(order, short)
    assert order.next() == long
    order.spent(3 * QUANTUM_S)  # and has nothing more to do for now
    wait(order, long)
    for _ in range(8):
        assert order.next() == short
        wait(order, short)
        order.spent(QUANTUM_S / 4)
    order.leave(short)
    assert order.next() == long
    order.spent(3 * QUANTUM_S)
    wait(order, long)
    wait(order, short)
    assert order.next() == long
