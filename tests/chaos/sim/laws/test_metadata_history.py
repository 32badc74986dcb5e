"""The faults in answers about the metadata, compared with what was requested, confirmed and shown
before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chaos.sim.laws.metadata_history import CONFIG, UNSET, MetadataHistory
from metadata.image import MetadataImage
from stele.admin.descriptions import PartitionDescription, TopicDescription

TOPIC = "topic"


class Judged:
    """A history, and its reports."""

    def __init__(self) -> None:
        self.committed = MetadataImage(offset=0)
        self.violations: list[str] = []
        self.history = MetadataHistory(lambda: [self.committed], self.violations.append)

    def read(self, *topics: TopicDescription) -> list[str]:
        """Add one read of all topics. Returns what the history reports."""
        return self.answer(self.history.question("b1"), *topics)

    def answer(self, question: object, *topics: TopicDescription) -> list[str]:
        before = len(self.violations)
        self.history.topics_read(question, topics)  # type: ignore[arg-type]
        return self.violations[before:]


def described(
    name: str = TOPIC,
    *,
    partition_epoch: int = 0,
    isr: Sequence[int] = (1, 2),
    config: str = UNSET,
    topic_id: bytes = b"id",
) -> TopicDescription:
    partition = PartitionDescription(0, 1, 0, partition_epoch, (1, 2), tuple(isr), (), 0)
    configs = {} if config == UNSET else {CONFIG: config}
    return TopicDescription(name, topic_id, (partition,), configs)


@pytest.fixture
def judged() -> Judged:
    return Judged()


def test_a_topic_is_seen_from_its_confirmed_creation_to_its_deletion(judged: Judged) -> None:
    assert judged.read() == []
    creation = judged.history.creation_asked(TOPIC)
    early = judged.history.question("b2")
    assert judged.read() == []
    assert judged.read(described()) == []  # done, if not told yet
    assert judged.answer(early) == []  # it began before
    assert "absent" in judged.read()[0]
    creation.confirmed()
    deletion = judged.history.deletion_asked(TOPIC)
    assert judged.read(described()) == []
    deletion.confirmed()
    assert judged.read() == []
    assert "there" in judged.read(described())[0]


def test_what_was_refused_or_nobody_asked_for_is_never_seen(judged: Judged) -> None:
    creation = judged.history.creation_asked(TOPIC)
    creation.refused()
    assert "refused" in judged.read(described())[0]


def test_a_topic_that_was_there_may_not_vanish_before_its_deletion_is_asked_for(
    judged: Judged,
) -> None:
    judged.history.creation_asked(TOPIC).confirmed()
    assert "absent" in judged.read()[0]


def test_a_config_is_what_was_confirmed_last_or_what_may_have_been_done_since(
    judged: Judged,
) -> None:
    judged.history.creation_asked(TOPIC).confirmed()
    judged.history.config_asked(TOPIC, "1")  # without an answer
    second = judged.history.config_asked(TOPIC, "2")
    second.confirmed()
    assert judged.read(described(config="2")) == []
    assert judged.read(described(config="1")) == []  # late
    assert judged.read(described(config="2")) != []
    assert "nobody had asked for" in judged.read(described(config="3"))[0]


def test_epochs_and_offsets_never_go_back_in_real_time(judged: Judged) -> None:
    slow = judged.history.question("b1")
    assert judged.read(described(partition_epoch=5)) == []
    assert judged.answer(slow, described(partition_epoch=4)) == []  # it began before
    assert "the partition epoch" in judged.read(described(partition_epoch=4))[0]
    assert judged.read(described(partition_epoch=1, topic_id=b"another")) == []

    judged.history.cluster_read(judged.history.question("b1"), 7, {1: 20})
    assert judged.violations[1:] == []
    judged.history.cluster_read(judged.history.question("b1"), 6, {1: 19})
    assert len(judged.violations) == 3


def test_what_any_node_knows_as_committed_is_known_to_a_later_answer(judged: Judged) -> None:
    question = judged.history.question("b1")
    judged.committed = MetadataImage(offset=9)
    judged.history.cluster_read(question, 8, {})
    assert judged.violations == []
    judged.history.cluster_read(judged.history.question("b1"), 8, {})
    assert "9 was known before" in judged.violations[0]


def test_in_one_partition_epoch_a_partition_is_what_it_is(judged: Judged) -> None:
    assert judged.read(described(isr=(1, 2))) == []
    assert "in one partition epoch" in judged.read(described(isr=(1,)))[0]


def test_a_client_sees_its_own_changes_even_where_others_may_not(judged: Judged) -> None:
    judged.history.creation_asked(TOPIC).confirmed()
    judged.history.config_asked(TOPIC, "1").confirmed()
    judged.history.own_read("me", TOPIC, is_there=True, config="1")
    assert judged.violations == []
    judged.history.own_read("me", TOPIC, is_there=True, config=UNSET)
    judged.history.own_read("me", TOPIC, is_there=False, config=UNSET)
    assert len(judged.violations) == 2


def test_the_end_is_judged_as_a_read_is(judged: Judged) -> None:
    judged.history.creation_asked(TOPIC).confirmed()
    judged.history.end(MetadataImage(offset=9))
    assert "the metadata of the end" in judged.violations[0]


def test_partitions_are_as_many_as_confirmed_and_no_more_than_asked_for(judged: Judged) -> None:
    one = described()
    two = replace(one, partitions=(*one.partitions, replace(one.partitions[0], partition=1)))
    judged.history.creation_asked(TOPIC).confirmed()
    judged.history.partitions_asked(TOPIC, 1)
    assert judged.read(one) == []
    judged.history.partitions_asked(TOPIC, 2)
    early = judged.history.question("b2")
    judged.history.partitions_confirmed(TOPIC, 2)
    assert judged.answer(early, one) == []  # it began before
    assert "the number of partitions" in judged.read(one)[0]
    assert judged.read(two) == []
    three = replace(two, partitions=(*two.partitions, replace(two.partitions[0], partition=2)))
    assert "2 were asked for" in judged.read(three)[0]


def test_who_has_added_partitions_reads_no_fewer_and_no_more(judged: Judged) -> None:
    one = described()
    judged.history.creation_asked(TOPIC).confirmed()
    judged.history.partitions_asked(TOPIC, 3)  # without an answer
    judged.history.own_count_read("the administrator", one)
    assert judged.violations == []
    judged.history.partitions_confirmed(TOPIC, 3)
    judged.history.own_count_read("the administrator", one)
    assert judged.violations == [
        "the administrator reads 1 partitions of its own topic, not 3 to 3"
    ]
