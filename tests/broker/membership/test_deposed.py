"""What a broker does with metadata in which it leads partitions that others lead by now."""

from __future__ import annotations

from dataclasses import dataclass

from broker.membership.deposed import VisibleImage
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER
from tests.support.controller import Machine


@dataclass
class Published:
    """The metadata as published last."""

    image: MetadataImage


def image() -> MetadataImage:
    machine = Machine()
    machine.brokers(1, 2)
    machine.create("led", {0: [1, 2], 1: [2, 1]})
    machine.create("followed", {0: [2, 1]})
    return machine.image


def leaders(seen: MetadataImage) -> dict[tuple[str, int], int]:
    return {(topic.name, number): state.leader for topic, number, state in seen.sorted_partitions()}


def test_a_broker_that_may_lead_shows_what_there_is() -> None:
    true = image()
    assert VisibleImage(1, Published(true), lambda: False)() is true


def test_one_that_is_deposed_shows_itself_as_no_leader() -> None:
    true = image()
    seen = VisibleImage(1, Published(true), lambda: True)()
    assert leaders(seen) == {("followed", 0): 2, ("led", 0): NO_LEADER, ("led", 1): 2}
    assert leaders(true)["led", 0] == 1
    followed = true.topic("followed")
    assert followed is not None
    assert seen.topic("followed") is followed


def test_what_it_shows_is_made_once_for_each_image() -> None:
    first, second = image(), image()
    metadata, deposed = Published(first), True
    visible = VisibleImage(1, metadata, lambda: deposed)
    seen = visible()
    assert visible() is seen
    metadata.image = second
    assert visible() is not seen
    assert leaders(visible())["led", 0] == NO_LEADER
    deposed = False
    assert visible() is second
    metadata.image = first
    deposed = True
    assert leaders(visible())["led", 0] == NO_LEADER
