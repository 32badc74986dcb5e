"""Members of groups, and clients that keep offsets, in a cluster where nothing goes wrong."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from broker.coordinator.group.consumer import migration
from chaos.sim.laws.committed_offsets import CommittedOffsetsStay
from chaos.sim.laws.generations import PartitionsHaveOneOwner
from chaos.sim.laws.member_epochs import MembersReconcile
from chaos.sim.runs.swarm import Plan, run, silent
from chaos.sim.work.groups import GroupLoad
from chaos.sim.work.load import LoadKind

GROUPS = GroupLoad(
    members=3,
    static_members=1,
    consumers=3,
    static_consumers=1,
    session_timeout_ms=1000,
    keepers=2,
    keep_pause_s=0.2,
    segment_bytes=2000,
    settings=(
        ("offsets.topic.num.partitions", "3"),
        ("group.min.session.timeout.ms", "500"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("group.consumer.session.timeout.ms", "1000"),
        ("group.consumer.min.session.timeout.ms", "500"),
        ("group.consumer.heartbeat.interval.ms", "200"),
        ("group.consumer.min.heartbeat.interval.ms", "100"),
        ("log.cleaner.backoff.ms", "300"),
        ("log.cleaner.dedupe.buffer.size", "1048576"),
    ),
)


def test_members_and_keepers_do_all_that_they_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupLoad, "draw", lambda _: GROUPS)
    with silent():
        outcome = run(Plan(7, seconds=24, faults=("conditions",), load=LoadKind.LIGHT))
    assert outcome.ok, outcome.violations
    for what in (
        "assignments of consumers",
        "assignments of groups",
        "commits refused",
        "consumers died",
        "consumers left",
        "consumers stood still",
        "groups deleted",
        "members died",
        "members left",
        "members stood still",
        "offsets committed",
        "offsets deleted",
    ):
        assert outcome.coverage.get(what, 0) > 0, what
    assert outcome.looks[CommittedOffsetsStay.name] > 50
    assert outcome.looks[PartitionsHaveOneOwner.name] > 50
    assert outcome.looks[MembersReconcile.name] > 100


def test_members_change_their_protocol_under_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From the classic protocol to the consumer protocol and back, more than once."""
    load = replace(GROUPS, members=0, consumers=0, static_consumers=0, movers=3, keepers=0)
    monkeypatch.setattr(GroupLoad, "draw", lambda _: load)
    with caplog.at_level(logging.INFO, logger=migration.__name__):
        outcome = run(Plan(7, seconds=24, faults=("conditions",), load=LoadKind.LIGHT))
    assert outcome.ok, outcome.violations
    assert outcome.coverage["protocols drawn again"] > 3
    assert outcome.looks[MembersReconcile.name] > 50
    told = [each.getMessage().partition(" goes ")[2] for each in caplog.records]
    assert told.count("on with the consumer protocol") > 1
    assert told.count("on with the classic protocol") > 1
