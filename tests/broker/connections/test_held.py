"""The queue of held connections, against a twin that keeps a list for each address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.connections import held
from broker.connections.held import FairQueue


class Twin:
    """Lists, in the order in which the addresses are served."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.lists: list[tuple[str, list[int]]] = []

    def of(self, address: str) -> list[int]:
        return next((each for name, each in self.lists if name == address), [])

    def push(self, connection: int, address: str) -> int | None:
        out = None
        if sum(len(each) for _, each in self.lists) >= self.most:
            longest = max((each for _, each in self.lists), key=len)
            if len(self.of(address)) >= len(longest):
                return connection
            out = longest.pop()
            self.lists = [item for item in self.lists if item[1]]
        if not self.of(address):
            self.lists.append((address, []))
        self.of(address).append(connection)
        return out

    def pop(self) -> int:
        address, waiting = self.lists.pop(0)
        first = waiting.pop(0)
        if waiting:
            self.lists.append((address, waiting))
        return first

    def remove(self, connection: int, address: str) -> None:
        if connection in self.of(address):
            self.of(address).remove(connection)
        self.lists = [item for item in self.lists if item[1]]


EVENTS = st.lists(
    st.sampled_from("abcd").map(lambda address: ("push", address))
    | st.just(("pop", ""))
    | st.integers(0, 40).map(lambda number: ("remove", str(number))),
    min_size=20,
    max_size=80,
)


@given(EVENTS, st.integers(1, 6))
def test_as_the_twin(events: list[tuple[str, str]], most: int) -> None:
    queue, twin = FairQueue[int](), Twin(most)
    addresses: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "HELD_MAX", most)
        for what, argument in events:
            if what == "push":
                addresses.append(argument)
                number = len(addresses) - 1
                assert queue.push(number, argument) == twin.push(number, argument)
            elif what == "pop" and queue:
                assert queue.pop() == twin.pop()
            elif what == "remove" and addresses:  # it may not wait any more
                number = int(argument) % len(addresses)
                queue.remove(number, addresses[number])
                twin.remove(number, addresses[number])
            assert len(queue) == sum(len(each) for _, each in twin.lists) <= most


def test_a_connection_that_does_not_wait_is_removed_without_effect() -> None:
    """It was let in before it left, as was all that waited of its address or not."""
    queue = FairQueue[int]()
    for number, address in enumerate("aab"):
        queue.push(number, address)
    assert [queue.pop(), queue.pop()] == [0, 2]
    queue.remove(0, "a")
    queue.remove(2, "b")
    assert (len(queue), queue.pop(), len(queue)) == (1, 1, 0)


def test_the_address_that_has_most_in_a_full_queue_loses_its_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "HELD_MAX", 4)
    queue = FairQueue[int]()
    out = [queue.push(number, address) for number, address in enumerate("babaabcd")]
    assert out == [None, None, None, None, 4, 5, 2, 3]
    assert [queue.pop() for _ in range(4)] == [0, 1, 6, 7]


def test_a_flood_from_one_address_delays_another_by_one_turn_and_keeps_it_not_out() -> None:
    queue = FairQueue[int]()
    refused = [queue.push(number, "flood") for number in range(3000)]
    assert refused.count(None) == held.HELD_MAX
    assert queue.push(3000, "polite") == held.HELD_MAX - 1, "the flood's newest one gives way"
    assert [queue.pop(), queue.pop()] == [0, 3000]
