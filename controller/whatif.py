"""What would happen if brokers died or controllers stopped: the controller's own rules, tried out.

Nothing is guessed here: the brokers are fenced on a copy of the image by the same decision that the
active controller would make. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from controller.cluster import fence
from controller.machine import Context
from metadata.effective import min_insync_replicas
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER, PartitionState
from metadata.topics import Topic
from stele.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Consequence:
    """What becomes of one partition. Only what gets worse is true."""

    partition: TopicPartition
    moves_to: int | None
    """The leader that takes over; None if the leader stays or there is none."""
    loses_reads: bool
    loses_writes: bool
    """For acks=all: the partition is offline, or its ISR is too small."""
    loses_records: bool
    """An unclean election takes place."""
    copies: int
    """How many brokers that go on have every committed record. 0: only the dead ones do."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The controllers after some have stopped."""

    voters: int
    left: int

    @property
    def survives(self) -> bool:
        return self.left > self.voters // 2


@dataclass(frozen=True, slots=True)
class WhatIf:
    consequences: tuple[Consequence, ...]
    """The consequences for partitions that change, by name and number."""
    quorum: Quorum
    unknown: tuple[int, ...]
    """Ids that are neither a registered broker nor a voter."""

    @property
    def harmless(self) -> bool:
        """Whether every partition can still be read and written, and metadata can change."""
        lossy = (
            each.loses_reads or each.loses_writes or each.loses_records
            for each in self.consequences
        )
        return self.quorum.survives and not any(lossy)


def what_if(
    image: MetadataImage,
    voters: Mapping[int, bool],
    *,
    dead: Collection[int] = (),
    stopped_controllers: Collection[int] = (),
    static: Mapping[str, str] | None = None,
) -> WhatIf:
    """Try it out. ``dead`` are nodes, whatever their roles. ``voters``: by id, whether each is
    there now. ``static``: the controller's server.properties, where no dynamic configuration is.
    """
    gone = {*dead, *stopped_controllers}
    left = sum(present and voter not in gone for voter, present in voters.items())
    after = _without(image, dead, static or {})
    known = {each.broker_id for each in image.sorted_brokers()} | set(voters)
    return WhatIf(
        tuple(_consequences(image, after, frozenset(dead))),
        Quorum(len(voters), left),
        tuple(sorted(gone - known)),
    )


def _without(
    image: MetadataImage, dead: Collection[int], static: Mapping[str, str]
) -> MetadataImage:
    for broker_id in sorted(dead):
        registration = image.broker(broker_id)
        if registration is None or registration.fenced:
            continue
        context = Context(image, image.offset + 1, static, _NoRng(), "")
        image = fence(context, broker_id, registration.broker_epoch).image
    return image


def _consequences(
    before: MetadataImage, after: MetadataImage, dead: frozenset[int]
) -> Iterator[Consequence]:
    for topic, number, old in before.sorted_partitions():
        if dead.isdisjoint(old.replicas):
            continue
        new = after.partition(topic.topic_id, number)
        assert new is not None  # fencing removes nothing
        holders = {*old.isr, *old.elr} - dead
        copies = sum(before.is_active(each) for each in holders)
        yield Consequence(
            TopicPartition(topic.name, number),
            moves_to=new.leader if new.leader not in (old.leader, NO_LEADER) else None,
            loses_reads=NO_LEADER == new.leader != old.leader,
            loses_writes=_takes_writes(before, topic, old) and not _takes_writes(after, topic, new),
            loses_records=new.unclean_elections > old.unclean_elections,
            copies=copies,
        )


def _takes_writes(image: MetadataImage, topic: Topic, state: PartitionState) -> bool:
    enough = min(min_insync_replicas(image, topic.name), state.replication_factor)
    return state.leader != NO_LEADER and len(state.isr) >= enough


class _NoRng:
    """Fencing draws nothing."""

    def _refuse(self, *arguments: object) -> NoReturn:
        raise AssertionError("fencing a broker draws no random numbers")

    random = randrange = uniform = randbytes = _refuse
