"""The verdict on a history: each expectation, whether it holds, and what was seen. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chaos.drills.chain.findings import ChainFindings, find_chain
from chaos.drills.findings import Findings, find
from chaos.drills.history import FINAL, Acked, Failed, History, Read, Zombie
from chaos.drills.outages import Outage, Times, measure
from chaos.drills.queue.findings import QueueFindings, find_queue

_SHOWN = 3
PROBE = "probe"
"""How the names of producers begin that only ask whether a write is refused."""


@dataclass(frozen=True, slots=True)
class Check:
    """One law or expectation. ``told``: the observation, whether it holds or not."""

    name: str
    holds: bool
    told: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """``chain``, ``queue``: None if the history has no chain of transactions, no share group."""

    checks: tuple[Check, ...]
    findings: Findings
    times: Times
    chain: ChainFindings | None = None
    queue: QueueFindings | None = None

    @property
    def green(self) -> bool:
        return all(check.holds for check in self.checks)

    @property
    def broken(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.holds)


def judge(history: History) -> Verdict:
    """Derive the verdict from the history alone."""
    findings, times, chain = find(history), measure(history), find_chain(history)
    queue = find_queue(history)
    checks = (
        *_course(history, times),
        *_records(history, findings),
        *_chain(history, chain),
        *_queue(history, queue),
        *_reactions(history, times),
        *_budgets(history, times),
    )
    return Verdict(checks, findings, times, chain, queue)


def _course(history: History, times: Times) -> Iterator[Check]:
    """The drill went its way: otherwise nothing else says anything."""
    faults = history.steps("fault")
    yield Check("a fault was injected", bool(faults), f"faults: {len(faults)}")
    failed = history.steps("failed")
    yield Check("the drill came to its end", not failed, failed[0].text if failed else "it did")
    whole = times.recovered_ms is not None
    told = f"{times.recovered_ms:.0f} ms after it was healed" if whole else "it did not"
    yield Check("the cluster recovered", whole, told)
    final = sum(1 for read in history.of(Read) if read.reader == FINAL)
    yield Check("everything was read back", final > 0, f"{final} records in the log")


def _records(history: History, found: Findings) -> Iterator[Check]:
    expected = history.header.expectations
    acknowledged = f"of {found.acknowledged} acknowledged"
    yield Check("records were acknowledged", found.acknowledged > 0, str(found.acknowledged))
    if expected.loses:
        told = f"{_names(found.lost)} {acknowledged}"
        yield Check("acknowledged records are lost, as they must be", bool(found.lost), told)
    else:
        yield _none("no acknowledged record is lost", found.lost, acknowledged)
        yield _none("nothing that a consumer has read has vanished", found.vanished)
        yield _none("each record is where its acknowledgement says", found.moved)
    if not expected.duplicates:
        yield _none("no record is there twice", found.duplicated)
        yield _none("no record is out of order", found.reordered)
    yield _none("no record is there that nobody sent", found.unknown)
    yield _none("no record is there whose producer was told that it is not", found.denied)


def _chain(history: History, found: ChainFindings | None) -> Iterator[Check]:
    if not history.header.expectations.chain:
        return
    if found is None:
        yield Check("records went through the chain", False, "none")
        return
    told = f"{found.acknowledged} acknowledged, {found.out} came out"
    yield Check("records went through the chain", found.acknowledged > 0 < found.out, told)
    yield _none("every acknowledged record came out of the chain", found.lost)
    yield _none("no record came out of the chain twice", found.twice)
    yield _none("no record came out of the chain behind a later one", found.reordered)
    yield _none("no record came out of the chain that no source sent", found.unsent)
    yield Check("every record passed each hop once", not found.unknown, f"{found.unknown} did not")
    drain_ms = history.header.expectations.drain_ms
    if drain_ms is not None:
        drained = found.drained_ms
        name = f"all records are out {drain_ms / 1000:g} s after the writing ended"
        told = "some never came out" if drained is None else f"{drained:.0f} ms"
        yield Check(name, drained is not None and drained <= drain_ms, told)


def _queue(history: History, found: QueueFindings | None) -> Iterator[Check]:
    limit = history.header.expectations.delivery_limit
    if not limit:
        return
    if found is None:
        yield Check("workers processed records", False, "none")
        return
    told = f"{found.records} acknowledged, {found.deliveries} deliveries, {found.again} again"
    yield Check("workers processed records", found.records > 0, told)
    yield Check("some records were poison", found.poison > 0, str(found.poison))
    yield _none("every acknowledged record was processed", found.lost)
    yield _none("no record was delivered after its acceptance was answered", found.undone)
    yield _none(f"no record was delivered more than {limit} times", found.excessive)
    yield _none(f"no poison was given up before delivery {limit}", found.untried)


def _reactions(history: History, times: Times) -> Iterator[Check]:
    expected = history.header.expectations
    if expected.refusal:
        refusals = [each.error for each in history.of(Failed) if each.producer.startswith(PROBE)]
        probed = [each for each in history.of(Acked) if each.producer.startswith(PROBE)]
        told = ", ".join(sorted(set(refusals))) or "no write was refused"
        if probed:
            told += f"; {len(probed)} were acknowledged"
        holds = bool(refusals) and set(refusals) == {expected.refusal} and not probed
        yield Check(f"writes are refused with {expected.refusal}", holds, told)
    if expected.elections:
        yield _at_least("partitions elected leaders", times.elections, expected.elections)
    if expected.elections_most is not None:
        seen, most = times.elections, expected.elections_most
        yield Check(f"partitions elected at most {most} leaders", seen <= most, str(seen))
    if expected.quorum_elections:
        seen = times.quorum_elections
        yield _at_least("the controllers elected a leader", seen, expected.quorum_elections)
    if expected.isr_least is not None:
        least = times.isr_least
        holds = least is not None and least <= expected.isr_least
        yield Check(f"an ISR shrank to {expected.isr_least} or less", holds, f"least {least}")
    if expected.unclean_elections:
        seen = times.unclean_elections
        yield _at_least("unclean elections were counted", seen, expected.unclean_elections)
    else:
        holds = times.unclean_elections == 0
        yield Check("no election was unclean", holds, str(times.unclean_elections))
    if expected.zombie:
        outcomes = [each.outcome for each in history.of(Zombie)]
        acknowledged = sum(outcome == "NONE" for outcome in outcomes)
        told = f"{acknowledged} of {len(outcomes)}; " + ", ".join(sorted(set(outcomes)))
        holds = bool(outcomes) and not acknowledged
        yield Check("the paused leader acknowledged nothing", holds, told)
    if expected.group_outage_ms is not None:
        yield Check("no committed offset went back", not times.regressions, str(times.regressions))


def _budgets(history: History, times: Times) -> Iterator[Check]:
    expected = history.header.expectations
    budgets = (
        ("writes", expected.write_outage_ms, times.writes),
        ("reads", expected.read_outage_ms, times.reads),
        ("the group's work", expected.group_outage_ms, times.group),
    )
    for what, budget_ms, outages in budgets:
        if budget_ms is not None:
            yield _within(f"outage of {what} at most {budget_ms / 1000:g} s", budget_ms, outages)
    if expected.recovery_ms is not None and times.recovered_ms is not None:
        name = f"recovery within {expected.recovery_ms / 1000:g} s"
        holds = times.recovered_ms <= expected.recovery_ms
        yield Check(name, holds, f"{times.recovered_ms:.0f} ms")


def _within(name: str, budget_ms: float, outages: Sequence[Outage]) -> Check:
    if not outages:
        return Check(name, False, "nothing was measured")
    longest = max(outages, key=lambda each: each.duration_ms)
    told = f"{longest.duration_ms:.0f} ms in partition {longest.partition}"
    return Check(name, longest.duration_ms <= budget_ms, told)


def _at_least(name: str, seen: int, least: int) -> Check:
    return Check(name, seen >= least, f"{seen}, at least {least} expected")


def _none(name: str, found: Sequence[object], of_what: str = "") -> Check:
    return Check(name, not found, f"{_names(found)} {of_what}".rstrip())


def _names(found: Sequence[object]) -> str:
    if not found:
        return "0"
    more = ", …" if len(found) > _SHOWN else ""
    return f"{len(found)} ({', '.join(map(str, found[:_SHOWN]))}{more})"
