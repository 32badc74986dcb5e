"""Whose turn it is: properties against an account that is kept apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from runtime.kafka.turn_order import DEBT_MAX_S, QUANTUM_S, TurnOrder

COST_MAX_S = 5 * QUANTUM_S
ITEMS = [
    (user, client, number) for user in "abc" for client in ("x", "y", "z") for number in range(4)
]
Item = tuple[str, str, int]

costs = st.floats(min_value=QUANTUM_S / 20, max_value=COST_MAX_S)
repeated_costs = st.lists(costs, min_size=1, max_size=7).map(lambda few: (few * 200)[:200])


class Ring:
    """A twin of one level: names, what each may take still, and its members."""

    def __init__(self) -> None:
        self.credits: dict[str, float] = {}
        self.members: dict[str, Any] = {}

    def enter(self, name: str, member: Any) -> Any:
        if name not in self.members:
            self.credits[name], self.members[name] = QUANTUM_S, member
        return self.members[name]

    def turn(self, works: Callable[[Any], object]) -> str:
        while True:
            name, member = next(iter(self.members.items()))
            if works(member) and self.credits[name] > 0:
                return name
            del self.members[name]
            self.credits[name] = min(self.credits[name], 0.0) + QUANTUM_S
            if works(member) or self.credits[name] <= 0:
                self.members[name] = member


class Twin:
    """Deficit round robin that looks for the next item anew each time."""

    def __init__(self) -> None:
        self.users = Ring()
        self.served: tuple[str, str] = ("", "")

    def wait(self, item: Item) -> None:
        self.users.enter(item[0], Ring()).enter(item[1], []).append(item)

    def leave(self, item: Item) -> None:
        user = self.users.members.get(item[0])
        client = [] if user is None else user.members.get(item[1], [])
        if item in client:
            client.remove(item)

    def waiting(self) -> int:
        return sum(
            len(items) for user in self.users.members.values() for items in user.members.values()
        )

    def next(self) -> Item:
        name = self.users.turn(lambda user: any(user.members.values()))
        user = self.users.members[name]
        client = user.turn(bool)
        self.served = name, client
        item: Item = user.members[client].pop(0)
        return item

    def spent(self, cost_s: float) -> None:
        name, client = self.served
        for ring, key in ((self.users, name), (self.users.members[name], client)):
            ring.credits[key] = max(ring.credits[key] - cost_s, -DEBT_MAX_S)
        if not self.waiting():
            self.users = Ring()


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


FEW = [(user, client, number) for user in "ab" for client in "xy" for number in range(3)]
A0, A1, B0, B1 = ((user, "x", number) for user in "ab" for number in range(2))
changes = st.lists(st.tuples(st.booleans(), st.sampled_from(FEW)), max_size=3)
small_costs = st.floats(min_value=QUANTUM_S / 5, max_value=1.5 * QUANTUM_S)


@given(
    st.sets(st.sampled_from(FEW)),
    st.lists(st.tuples(changes, st.booleans(), changes, small_costs), max_size=30),
)
@example(
    {A0},  # another comes and leaves during the only turn
    [([], False, [(True, B0), (False, B0)], QUANTUM_S), ([(True, B0)], False, [], QUANTUM_S)],
)
@example(
    {A0, B0, B1},  # the user that came last is served, forgotten, and comes again
    [
        ([(True, A1)], False, [], QUANTUM_S / 5),
        *[([], False, [], QUANTUM_S / 5)] * 2,
        ([(True, A0)], False, [], QUANTUM_S / 5),
    ],
)
def test_the_order_is_that_of_a_twin_that_looks_for_each_item_anew(
    first: set[Item],
    turns: list[tuple[list[tuple[bool, Item]], bool, list[tuple[bool, Item]], float]],
) -> None:
    order: TurnOrder[Item] = TurnOrder()
    twin = Twin()

    def change(changed: Iterable[tuple[bool, Item]]) -> None:
        for waits, item in changed:
            if not waits:
                order.leave(item)
                twin.leave(item)
            elif item not in order:
                wait(order, item)
                twin.wait(item)
            assert len(order) == twin.waiting()

    def turn(waits_again: bool, during: list[tuple[bool, Item]], cost_s: float) -> None:
        if not len(order):
            return
        served = order.next()
        assert served == twin.next()
        change([*during, *([(True, served)] if waits_again else [])])
        order.spent(cost_s)
        twin.spent(cost_s)

    change((True, item) for item in sorted(first))
    for before, waits_again, during, cost_s in turns:
        change(before)
        turn(waits_again, during, cost_s)
    change((True, item) for item in FEW)
    while len(order):
        turn(False, [], QUANTUM_S / 3)


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
