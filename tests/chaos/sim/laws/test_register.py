"""The judgement of reads of one value, compared with trying all orders."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.sim.laws.register import Register

INITIAL = "initial"


def test_what_was_confirmed_before_a_read_is_what_it_finds() -> None:
    register = Register(INITIAL)
    register.write("a", 1)
    assert register.read(INITIAL, 2, 3) is None  # it may not have taken effect yet
    register.confirm("a", 4)
    assert register.read("a", 5, 6) is None
    assert register.read(INITIAL, 7, 8) is not None


def test_a_read_beside_a_change_finds_either_but_nobody_goes_back() -> None:
    register = Register(INITIAL)
    register.write("a", 1)
    assert register.read("a", 2, 5) is None
    assert register.read(INITIAL, 3, 6) is None  # beside the one that found it
    assert register.read(INITIAL, 7, 8) is not None  # after it


def test_a_change_of_unknown_outcome_takes_effect_late_and_once() -> None:
    register = Register(INITIAL)
    register.write("late", 1)
    register.write("a", 2)
    register.confirm("a", 3)
    assert register.read("a", 4, 5) is None
    assert register.read("late", 6, 7) is None
    register.write("b", 8)
    register.confirm("b", 9)
    assert register.read("b", 10, 11) is None
    assert register.read("late", 12, 13) is not None


def test_nobody_finds_what_nobody_asked_for_or_what_was_refused() -> None:
    register = Register(INITIAL)
    assert "nobody" in (register.read("a", 1, 2) or "")
    register.write("a", 3)
    assert register.refuse("a") is None
    assert "refused" in (register.read("a", 4, 5) or "")
    register.write("b", 6)
    assert register.read("b", 7, 8) is None
    assert register.refuse("b") is not None


def test_the_writer_finds_the_last_confirmed_value_or_one_of_unknown_outcome() -> None:
    register = Register(INITIAL)
    assert register.own_read(INITIAL) is None
    for moment, value in enumerate(["open", "a", "refused"]):
        register.write(value, 10 * moment)
    register.confirm("a", 15)
    assert register.refuse("refused") is None
    found = {value: register.own_read(value) for value in ("a", "open", INITIAL, "refused", "b")}
    assert [value for value, wrong in found.items() if wrong is None] == ["a", "open"]


# ------------------------------------------------------------------- against all orders

OPEN = 1000  # the end of a write whose outcome stays unknown


class Operation(NamedTuple):
    began: int
    ended: int
    value: str
    writes: bool


def is_linearizable(operations: list[Operation]) -> bool:
    """Decide by brute force. An open write may be left out if nobody read its value."""
    read = {each.value for each in operations if not each.writes}
    needed = [each for each in operations if each.ended < OPEN or each.value in read]
    return any(_holds(order) for order in permutations(needed))


def _holds(order: tuple[Operation, ...]) -> bool:
    """Whether no operation comes before one that had ended when it began, and each read finds the
    last write before it."""
    for index, operation in enumerate(order):
        if any(operation.ended < before.began for before in order[:index]):
            return False
    present = INITIAL
    for operation in order:
        if operation.writes:
            present = operation.value
        elif operation.value != present:
            return False
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Histories of one writer, some of whose writes stay open, and of readers of any written
    value."""
    moments = draw(st.permutations(range(14)))
    operations: list[Operation] = []
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    pairs = [sorted(moments[2 * index : 2 * index + 2]) for index in range(7)]
    writes = sorted(pairs[: len(names)])
    for name, (began, ended) in zip(names, writes, strict=True):
        is_open = draw(st.booleans())
        operations.append(Operation(began, OPEN if is_open else ended, name, writes=True))
    for began, ended in pairs[len(names) : len(names) + draw(st.integers(1, 4))]:
        value = draw(st.sampled_from([INITIAL, *names]))
        operations.append(Operation(began, ended, value, writes=False))
    return operations


def judged(operations: list[Operation]) -> bool:
    """The judgement of the same history, event by event."""
    register, wrong = Register(INITIAL), False
    begun = [(each.began, each) for each in operations if each.writes]
    ended = [(each.ended, each) for each in operations if each.ended < OPEN]
    for moment, operation in sorted(begun + ended):
        if not operation.writes:
            found = register.read(operation.value, operation.began, moment)
            wrong = wrong or found is not None
        elif moment == operation.began:
            register.write(operation.value, moment)
        else:
            register.confirm(operation.value, moment)
    return not wrong


@given(histories())
@settings(max_examples=300)
def test_it_agrees_with_trying_all_orders(operations: list[Operation]) -> None:
    assert judged(operations) == is_linearizable(operations)
