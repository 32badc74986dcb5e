"""What a history says about its records, against a twin that compares all with all."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings

from chaos.drills.findings import Findings, Named, find
from chaos.drills.history import FINAL, Acked, Failed, History, Read, Sent
from tests.support.histories import green, histories


def named(each: Sent | Acked | Failed | Read) -> Named:
    return Named(each.partition, each.producer, each.number)


def twin(history: History) -> Findings:
    """By the words of the laws, in quadratic time."""
    final = [each for each in history.of(Read) if each.reader == FINAL]
    other = [each for each in history.of(Read) if each.reader != FINAL]
    sent, acked = list(history.of(Sent)), list(history.of(Acked))
    in_log = [named(each) for each in final]

    def first_offset(name: Named) -> int:
        return min(each.offset for each in final if named(each) == name)

    def last_acked(name: Named) -> Acked:
        return [each for each in acked if named(each) == name][-1]

    def overtaken(name: Named) -> bool:
        return any(
            (one.partition, one.producer) == (name.partition, name.producer)
            and one.number > name.number
            and first_offset(one) <= first_offset(name)
            and (first_offset(one), one.number) < (first_offset(name), name.number)
            for one in in_log
        )

    def at(partition: int, offset: int) -> Named | None:
        there = [each for each in final if (each.partition, each.offset) == (partition, offset)]
        return named(there[-1]) if there else None

    names = sorted({named(each) for each in acked})
    return Findings(
        acknowledged=len(names),
        lost=tuple(each for each in names if each not in in_log),
        duplicated=tuple(each for each in sorted(set(in_log)) if in_log.count(each) > 1),
        reordered=tuple(each for each in sorted(set(in_log)) if overtaken(each)),
        moved=tuple(
            each
            for each in names
            if each in in_log
            and last_acked(each).offset >= 0
            and not any(
                named(read) == each and read.offset == last_acked(each).offset for read in final
            )
        ),
        unknown=tuple(
            each for each in sorted(set(in_log)) if each not in [named(one) for one in sent]
        ),
        vanished=tuple(
            sorted(
                {named(each) for each in other if at(each.partition, each.offset) != named(each)}
            )
        ),
        denied=tuple(
            sorted(
                {
                    named(each)
                    for each in history.of(Failed)
                    if not each.maybe_written and named(each) in in_log
                }
            )
        ),
    )


@given(histories())
@settings(max_examples=300, deadline=None)
def test_it_finds_what_the_twin_finds(history: History) -> None:
    assert find(history) == twin(history)


def test_a_green_history_has_nothing_wrong() -> None:
    found = find(green())
    assert found.acknowledged == 20
    wrong = {each.name: getattr(found, each.name) for each in dataclasses.fields(found)}
    assert {name for name, value in wrong.items() if value} == {"acknowledged"}
