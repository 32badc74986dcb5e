"""Logins under way on a gRPC listener: their bounds, and whose dialogue makes way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.logins.pending import DEADLINE_S, MAX_DIALOGUES, Pending, PendingDialogues
from security.sasl.plain import PlainDialogue


def begun(address: str, at_s: float = 0.0) -> Pending:
    return Pending(PlainDialogue({}, None), "PLAIN", address, at_s)


def number_id(number: int) -> bytes:
    return number.to_bytes(16)


def test_a_flood_from_one_address_breaks_off_no_dialogue_of_another() -> None:
    dialogues = PendingDialogues()
    dialogues.add(b"good", begun("10.0.0.1"))
    for number in range(3 * MAX_DIALOGUES):
        dialogues.add(number_id(number), begun("10.0.0.66"))
    assert len(dialogues) == MAX_DIALOGUES
    assert dialogues.take(number_id(0), 0.0) is None
    assert dialogues.take(number_id(3 * MAX_DIALOGUES - 1), 0.0) is not None
    good = dialogues.take(b"good", DEADLINE_S / 2)
    assert good is not None
    assert good.address == "10.0.0.1"


def test_a_dialogue_is_taken_once_and_in_time() -> None:
    dialogues = PendingDialogues()
    dialogues.add(b"a", begun("10.0.0.1", 5.0))
    dialogues.add(b"b", begun("10.0.0.1", 5.0))
    assert dialogues.take(b"a", 5.0) is not None
    assert dialogues.take(b"a", 5.0) is None
    assert dialogues.take(b"b", 5.0 + DEADLINE_S) is None
    assert len(dialogues) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 3)), max_size=200))
def test_below_the_bound_nothing_makes_way(steps: list[tuple[bool, int, int]]) -> None:
    dialogues, twin = PendingDialogues(), dict[bytes, str]()
    for number, (adds, chosen, address) in enumerate(steps):
        if adds:
            twin[number_id(number)] = f"10.0.0.{address}"
            dialogues.add(number_id(number), begun(f"10.0.0.{address}"))
        else:
            known = twin.pop(number_id(chosen), None)
            taken = dialogues.take(number_id(chosen), 0.0)
            assert (None if taken is None else taken.address) == known
        assert len(dialogues) == len(twin)
