"""Credit, against a ledger that forgets nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.gateway.credit import Credit

GRANTS = st.tuples(st.integers(0, 5), st.none() | st.integers(0, 30))
SIZES = st.lists(st.integers(0, 12), max_size=6)


class Ledger:
    """Every grant, and the size of every record that was sent."""

    def __init__(self) -> None:
        self.grants: list[tuple[int, int | None]] = []
        self.sent: list[int] = []

    @property
    def may_send(self) -> bool:
        counted = [bytes_ for _, bytes_ in self.grants if bytes_ is not None]
        has_bytes = not counted or sum(counted) > sum(self.sent_since_counted)
        return sum(records for records, _ in self.grants) > len(self.sent) and has_bytes

    @property
    def sent_since_counted(self) -> list[int]:
        """Before the first grant of bytes they are not counted."""
        return self.sent[self.uncounted :]

    uncounted = 0


@given(st.lists(st.one_of(GRANTS, SIZES), max_size=30))
def test_as_many_records_as_were_granted(events: list[tuple[int, int | None] | list[int]]) -> None:
    credit, ledger = Credit(), Ledger()
    for event in events:
        if isinstance(event, tuple):
            records, bytes_ = event
            if bytes_ is not None and all(each is None for _, each in ledger.grants):
                ledger.uncounted = len(ledger.sent)
            ledger.grants.append(event)
            credit.grant(records, bytes_)
        else:
            expected = 0
            for size in event:
                if not ledger.may_send:
                    break
                ledger.sent.append(size)
                expected += 1
            assert credit.spend(event) == expected
        assert credit.is_spent is not ledger.may_send
        if ledger.may_send:
            granted = sum(records for records, _ in ledger.grants)
            assert credit.records == granted - len(ledger.sent)
        else:
            assert credit.records == 0
