"""Compares what administrators were told about the metadata with what readers saw of it.

A linearizable answer is the metadata of one moment between question and answer. So:

- A topic, and its config, behaves like a single register (``register``). Readers see a change that
  was confirmed before the question. They never see a refused change. They may see a change of
  unknown outcome from some moment on. What one answer has shown, no later question misses.
- Numbers that only grow (the epochs of partitions and brokers, the metadata offset) are not below
  what an earlier answer has shown, nor below what any node knew as committed when the question was
  sent.
- A partition is the same in all answers that show the same partition epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from chaos.sim.cluster.view import images_of
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.register import Register
from chaos.sim.laws.scene import Report, Scene
from metadata.configs import ConfigResource as ImageResource
from metadata.image import EMPTY, MetadataImage
from stele.admin.descriptions import PartitionDescription, TopicDescription

ABSENT, THERE, GONE = "absent", "there", "gone"
UNSET = "unset"
CONFIG = "max.message.bytes"

Grown = tuple[object, ...]
"""The name of a number that only grows."""


@dataclass(slots=True)
class _TopicHistory:
    """The history of a topic that is created at most once and deleted at most once."""

    existence: Register = field(default_factory=lambda: Register(ABSENT))
    config: Register = field(default_factory=lambda: Register(UNSET))
    made_at: int | None = None  # when the creation was confirmed
    partitions_asked: int = 0  # the most partitions that it may have; 0: unknown


@dataclass(frozen=True, slots=True)
class Question:
    """A linearizable read under way."""

    who: str  # the node or client that is asked
    began: int
    floor: Mapping[Grown, int]  # the answer has to reach these numbers


class MetadataHistory(Law):
    """For a change, call ``..._asked``, then ``confirmed``, ``refused`` or neither. For a read,
    call ``question``, then ``..._read`` with the answer."""

    name = "answers are the metadata of one moment"
    cadence = Cadence.TOLD

    def __init__(self, committed: Callable[[], Iterable[MetadataImage]], report: Report) -> None:
        """``committed``: the committed metadata as each running node knows it."""
        self._committed = committed
        self._report = report
        self._moments = itertools.count()
        self._topics: dict[str, _TopicHistory] = {}
        self._grown: dict[Grown, int] = {}  # the largest that answers or confirmations have shown
        self._partitions: dict[tuple[bytes, int, int], PartitionDescription] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(lambda: images_of(scene.cluster), scene.report)

    # ------------------------------------------------------------------------------- changes

    @property
    def topics(self) -> list[str]:
        """All topics that anybody has asked for."""
        return list(self._topics)

    def was_configured(self, topic: str, value: str) -> bool:
        return value in self._topics[topic].config

    def creation_asked(self, topic: str) -> MetadataChange:
        assert topic not in self._topics
        history = self._topics[topic] = _TopicHistory()
        return self._asked(topic, history.existence, THERE)

    def deletion_asked(self, topic: str) -> MetadataChange:
        return self._asked(topic, self._topics[topic].existence, GONE)

    def config_asked(self, topic: str, value: str) -> MetadataChange:
        return self._asked(topic, self._topics[topic].config, value)

    def partitions_asked(self, topic: str, count: int) -> None:
        history = self._topics[topic]
        history.partitions_asked = max(history.partitions_asked, count)

    def partitions_confirmed(self, topic: str, count: int) -> None:
        """Every later answer has at least so many partitions, as long as the topic exists."""
        name = _count_of(topic)
        self._grown[name] = max(self._grown.get(name, 0), count)

    def _asked(self, topic: str, register: Register, value: str) -> MetadataChange:
        register.write(value, next(self._moments))
        return MetadataChange(self, topic, register, value)

    def confirmed(self, change: MetadataChange) -> None:
        moment = next(self._moments)
        change.register.confirm(change.value, moment)
        if change.value == THERE:
            self._topics[change.topic].made_at = moment

    def refused(self, change: MetadataChange) -> None:
        if wrong := change.register.refuse(change.value):
            self._report(f"topic {change.topic}: {wrong}")

    # --------------------------------------------------------------------------------- reads

    def question(self, who: str) -> Question:
        floor = dict(self._grown)
        # The newest image has the largest numbers.
        newest = max(self._committed(), key=lambda image: image.offset, default=EMPTY)
        for name, number in _numbers(newest):
            floor[name] = max(floor.get(name, number), number)
        return Question(who, next(self._moments), floor)

    def cluster_read(self, question: Question, offset: int, epochs: Mapping[int, int]) -> None:
        """The metadata offset, and the epochs of all registered brokers."""
        self._has_grown(question, ("the metadata offset",), offset)
        for broker, epoch in epochs.items():
            self._has_grown(question, ("the epoch of broker", broker), epoch)

    def topics_read(self, question: Question, topics: Collection[TopicDescription]) -> None:
        """The answer listed exactly these topics."""
        found = {topic.name for topic in topics}
        for name in self._topics:
            if name not in found:
                self.existence_read(question, name, is_there=False)
        for topic in topics:
            self.existence_read(question, topic.name, is_there=True)
            self.config_read(question, topic.name, topic.configs.get(CONFIG, UNSET))
            self._count_read(question, topic)
            for each in topic.partitions:
                place = topic.name, each.partition, topic.topic_id
                self._has_grown(question, ("the leader epoch of", *place), each.leader_epoch)
                self._has_grown(question, ("the partition epoch of", *place), each.partition_epoch)
                self._is_itself(question, topic, each)

    def _count_read(self, question: Question, topic: TopicDescription) -> None:
        """A topic never loses partitions, and has no more than were asked for."""
        history = self._topics.get(topic.name)
        if history is None or not history.partitions_asked:
            return
        count = len(topic.partitions)
        self._has_grown(question, _count_of(topic.name), count)
        if count > history.partitions_asked:
            self._report(
                f"{question.who} says that {topic.name} has {count} partitions, and "
                f"{history.partitions_asked} were asked for"
            )

    def existence_read(self, question: Question, name: str, *, is_there: bool) -> None:
        history = self._topics.get(name)
        if history is None:
            return
        value = THERE if is_there else ABSENT
        if not is_there and GONE in history.existence:
            if history.made_at is None or history.made_at > question.began:
                return  # so long a read may precede the creation or follow the deletion
            value = GONE
        self._judge(question, f"topic {name}", history.existence, value)

    def config_read(self, question: Question, name: str, value: str) -> None:
        """``value``: ``CONFIG`` as set on an existing topic, or UNSET."""
        if (history := self._topics.get(name)) is not None:
            self._judge(question, f"{CONFIG} of {name}", history.config, value)

    def own_read(self, who: str, name: str, *, is_there: bool, config: str) -> None:
        """A read, not linearizable, by the client that asked for all changes of the topic, after
        the last of these changes."""
        history = self._topics[name]
        absent = GONE if history.made_at is not None else ABSENT
        wrongs = [history.existence.own_read(THERE if is_there else absent)]
        if is_there:
            wrongs.append(history.config.own_read(config))
        for wrong in filter(None, wrongs):
            self._report(f"{who} reads of its own topic {name}: {wrong}")

    def own_count_read(self, who: str, topic: TopicDescription) -> None:
        """A read by the client that asked for all partitions of the topic, after it asked last."""
        count, most = len(topic.partitions), self._topics[topic.name].partitions_asked
        least = self._grown.get(_count_of(topic.name), 0)
        if not least <= count <= most:
            self._report(
                f"{who} reads {count} partitions of its own {topic.name}, not {least} to {most}"
            )

    def end(self, image: MetadataImage) -> None:
        """The metadata when all work has ended."""
        question = Question("the metadata of the end", next(self._moments), {})
        for name in self._topics:
            topic = image.topic(name)
            self.existence_read(question, name, is_there=topic is not None)
            if topic is not None:
                configs = image.config(ImageResource.topic(name))
                self.config_read(question, name, configs.get(CONFIG, UNSET))

    def _judge(self, question: Question, what: str, register: Register, value: str) -> None:
        self.looked += 1
        if wrong := register.read(value, question.began, next(self._moments)):
            self._report(f"{question.who}, asked linearizably, says of {what}: {wrong}")

    def _has_grown(self, question: Question, name: Grown, number: int) -> None:
        floor = question.floor.get(name, number)
        if number < floor:
            what = " ".join(str(part) for part in name if not isinstance(part, bytes))
            self._report(
                f"{question.who} answers a linearizable read with {number} for {what}, "
                f"and {floor} was known before it was asked"
            )
        self._grown[name] = max(self._grown.get(name, number), number)

    def _is_itself(
        self, question: Question, topic: TopicDescription, partition: PartitionDescription
    ) -> None:
        partition = replace(partition, offline_replicas=())  # brokers change without the partition
        key = topic.topic_id, partition.partition, partition.partition_epoch
        known = self._partitions.setdefault(key, partition)
        if known != partition:
            self._report(
                f"{question.who} describes {topic.name} in one partition epoch as {partition}, "
                f"and it was {known}"
            )


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """Something an administrator asked for, until its outcome is known."""

    history: MetadataHistory
    topic: str
    register: Register
    value: str

    def confirmed(self) -> None:
        self.history.confirmed(self)

    def refused(self) -> None:
        """The change has no effect and never will."""
        self.history.refused(self)


def _count_of(topic: str) -> Grown:
    return "the number of partitions of", topic


def _numbers(image: MetadataImage) -> Iterator[tuple[Grown, int]]:
    yield ("the metadata offset",), image.offset
    for registration in image.sorted_brokers():
        yield ("the epoch of broker", registration.broker_id), registration.broker_epoch
    for topic, number, state in image.sorted_partitions():
        place = topic.name, number, topic.topic_id
        yield ("the leader epoch of", *place), state.leader_epoch
        yield ("the partition epoch of", *place), state.partition_epoch
