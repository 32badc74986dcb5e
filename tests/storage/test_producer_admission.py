"""A full partition takes no further producer. A refused one begins where it was refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from storage import opening
from storage.config import LogConfig
from storage.producer_admission import (
    REFUSED_MAX,
    ProducerAdmission,
    UnknownProducerRefusedError,
)
from storage.producer_state import ProducerStates
from tests.support.batches import header_of, make_batch
from tests.support.storage import MemoryDisk, append
from tests.support.timing import HandClock


def admits(
    admission: ProducerAdmission, producer: tuple[int, int, int], known: int, most: int
) -> bool:
    try:
        admission.check(header_of(make_batch(1, producer=producer)), known, most)
    except UnknownProducerRefusedError:
        return False
    return True


def test_the_refusal_says_the_reason_and_the_setting() -> None:
    with pytest.raises(ApiError) as caught:
        ProducerAdmission().check(header_of(make_batch(1, producer=(7, 0, 0))), 3, 3)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert caught.value.message.startswith(
        "the partition remembers 3 producers, producer.ids.max is 3, and producer 7 is new."
    )


def test_a_producer_that_was_refused_begins_with_the_refused_batch() -> None:
    admission = ProducerAdmission()
    assert not admits(admission, (7, 0, 5), 2, 2)
    assert not admits(admission, (7, 0, 6), 2, 2)
    assert not admits(admission, (7, 0, 6), 1, 2), "5 has to come first"
    assert admits(admission, (7, 0, 5), 1, 2)
    assert admits(admission, (7, 0, 6), 1, 2), "5 has come, and is forgotten"


def test_a_producer_that_begins_a_new_epoch_leaves_the_refused_batch() -> None:
    admission = ProducerAdmission()
    assert not admits(admission, (7, 0, 5), 2, 2)
    assert not admits(admission, (7, 1, 0), 2, 2)
    assert not admits(admission, (7, 0, 5), 1, 2), "its epoch is over"
    assert admits(admission, (7, 1, 0), 1, 2)


def test_the_producers_refused_first_are_forgotten_first() -> None:
    admission = ProducerAdmission()
    for producer_id in range(REFUSED_MAX + 1):
        assert not admits(admission, (producer_id, 0, 0), 1, 1)
    assert admits(admission, (0, 0, 1), 0, 1)
    assert not admits(admission, (1, 0, 1), 0, 1)


class Twin:
    """Every refusal that counts, in a list. The newest is the last."""

    def __init__(self) -> None:
        self.refused: list[tuple[int, int, int]] = []

    def admits(self, producer: tuple[int, int, int], known: int, most: int) -> bool:
        producer_id, epoch, _ = producer
        mine = [each for each in self.refused if each[0] == producer_id and each[1] >= epoch]
        if known >= most:
            if not mine:
                self.refused = [each for each in self.refused if each[0] != producer_id]
                self.refused = [*self.refused, producer][-REFUSED_MAX:]
            return False
        if mine and mine != [producer]:
            return False
        self.refused = [each for each in self.refused if each[0] != producer_id]
        return True


@given(
    st.lists(
        st.tuples(
            st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), st.integers(0, 2)
        ),
        max_size=60,
    )
)
def test_it_decides_as_its_twin(batches: list[tuple[tuple[int, int, int], int]]) -> None:
    admission, twin = ProducerAdmission(), Twin()
    for producer, known in batches:
        assert admits(admission, producer, known, 1) == twin.admits(producer, known, 1)


SILENCE_MS = 6


class Producer:
    """Sends each sequence for the first time in order, and again in any order until it is taken."""

    def __init__(self, producer_id: int, states: ProducerStates, most: int) -> None:
        self.producer_id = producer_id
        self.states, self.most = states, most
        self.unanswered: list[int] = []
        self.taken: list[int] = []
        self.taken_ms = 0

    def send(self, now_ms: int) -> None:
        self.unanswered.append(len(self.taken) + len(self.unanswered))
        self.send_again(len(self.unanswered) - 1, now_ms)

    def send_again(self, at: int, now_ms: int) -> None:
        if at < len(self.unanswered) and self._is_new(self.unanswered[at], now_ms):
            self.taken.append(self.unanswered.pop(at))
            self.taken_ms = now_ms

    def repeat_last(self, now_ms: int) -> None:
        """It has not heard of its success, and must not be taken a second time."""
        if self.taken and now_ms - self.taken_ms < SILENCE_MS:
            assert not self._is_new(self.taken[-1], now_ms)

    def _is_new(self, sequence: int, now_ms: int) -> bool:
        header = header_of(make_batch(1, producer=(self.producer_id, 0, sequence)))
        try:
            duplicate = self.states.check(header, self.most)
        except ApiError:
            return False
        if duplicate is None:
            self.states.update(header, now_ms, now_ms)
        return duplicate is None


@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "again", "last", "expire"]), st.integers(0, 3)),
        max_size=80,
    ),
    st.integers(1, 2),
)
def test_each_batch_is_taken_once_and_after_the_earlier_ones(
    steps: list[tuple[str, int]], most: int
) -> None:
    states = ProducerStates()
    producers = [Producer(producer_id, states, most) for producer_id in range(4)]
    for now_ms, (step, number) in enumerate(steps):
        if step == "send":
            producers[number].send(now_ms)
        elif step == "again":
            for each in producers:
                each.send_again(number, now_ms)
        elif step == "last":
            producers[number].repeat_last(now_ms)
        else:
            states.expire(now_ms, SILENCE_MS)
        assert len(states) <= most
    for each in producers:
        assert each.taken == list(range(len(each.taken)))


def test_a_full_partition_takes_known_producers_and_new_ones_when_others_are_idle() -> None:
    config = LogConfig(producer_ids_max=2, producer_id_expiration_ms=1000)
    log = opening.open_log(MemoryDisk(), "/d/t-0", config, HandClock(), key=TopicPartition("t", 0))
    for producer_id in (1, 2):
        append(log, make_batch(1, producer=(producer_id, 0, 0)))
    with pytest.raises(UnknownProducerRefusedError):
        append(log, make_batch(1, producer=(3, 0, 0)))
    place = append(log, make_batch(1, producer=(1, 0, 1)))
    assert append(log, make_batch(1, producer=(1, 0, 1))) == place
    assert log.producers.begun == 2
    for _ in log.expiring_producers(1_001_000):
        pass
    append(log, make_batch(1, producer=(3, 0, 0)))
    assert [each.producer_id for each in log.producers] == [3]


def test_producers_with_open_transactions_are_not_forgotten_for_others() -> None:
    config = LogConfig(producer_ids_max=1, producer_id_expiration_ms=1000)
    log = opening.open_log(MemoryDisk(), "/d/t-0", config, HandClock(), key=TopicPartition("t", 0))
    append(log, make_batch(1, producer=(1, 0, 0), is_transactional=True))
    for _ in log.expiring_producers(1_005_000):
        pass
    with pytest.raises(UnknownProducerRefusedError):
        append(log, make_batch(1, producer=(2, 0, 0)))
