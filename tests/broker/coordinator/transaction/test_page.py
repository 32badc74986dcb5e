"""The tables of docs/transactions.md say what the coordinator does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.transaction_scripts import Script

PAGE = Path(__file__).parents[4] / "docs" / "transactions.md"
BEGIN = {
    "Empty": "init 2pc -> 0:0",
    "Ongoing": "init 2pc -> 0:0 \n add 0:0 a0 -> ok",
    "PrepareCommit": "init 2pc -> 0:0 \n add 0:0 a0 -> ok \n commit 0:0",
    "PrepareAbort": "init 2pc -> 0:0 \n add 0:0 a0 -> ok \n abort 0:0",
    "CompleteCommit": "init 2pc -> 0:0 \n add 0:0 a0 -> ok \n commit 0:0 \n markers",
    "CompleteAbort": "init 2pc -> 0:0 \n add 0:0 a0 -> ok \n abort 0:0 \n markers",
}
EVENTS = {
    "InitProducerId": "init 2pc",
    "… of the same client": "init 2pc expect={current}",
    "… that keeps": "init 2pc keep",
    "AddPartitions": "add {current} b0",
    "EndTxn: commit": "commit {current}",
    "EndTxn: abort": "abort {current}",
    "commit again": "commit {former}",
    "abort again": "abort {former}",
    "last marker": "markers",
}


def cells() -> list[tuple[int, str, str, str]]:
    """Transaction version, state, event and what the page says of them."""
    found = []
    for part in PAGE.read_text().split("<!-- version ")[1:]:
        version = int(part[0])
        lines = part.splitlines()[1:]
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        header, _, *body = rows[: rows.index([])]
        for state, *texts in body:
            found += [(version, state, *each) for each in zip(header[1:], texts, strict=True)]
    return found


@pytest.mark.parametrize(("version", "state", "event", "text"), cells())
def test_a_cell(version: int, state: str, event: str, text: str) -> None:
    script = Script()
    script.run(f"version {version} \n {BEGIN[state]}")
    assert script.bench.state().split()[0] == state
    has_ended = version == 2 and state not in ("Empty", "Ongoing")
    # The client of an id that was not used much: it has the first epoch, or the one after it.
    current, former = ("0:1", "0:0") if has_ended else ("0:0", "0:-1")
    if not text:
        assert event == "last marker"
        return
    error, _, becomes = (each.strip() for each in text.partition("→"))
    told = script.tell(EVENTS[event].format(current=current, former=former))
    if error:
        assert told == error
    else:
        assert told is None or told.split(":")[0] in ("ok", "ok 0", "0")
    assert script.bench.state().split()[0] == (becomes or state)


def test_all_states_and_events_are_there() -> None:
    for version, events in (
        (2, list(EVENTS)),
        (1, [*list(EVENTS)[:2], *list(EVENTS)[3:6], "last marker"]),
    ):
        told = [(state, event) for number, state, event, _ in cells() if number == version]
        assert told == [(state, event) for state in BEGIN for event in events]
