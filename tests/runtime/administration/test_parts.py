"""Changes of many items: divided into decisions, and answered as one."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.administration import DECISIONS
from metadata.topics import metric_name
from runtime.administration.changes import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    CHANGES,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    Change,
    Items,
    change_of,
)
from runtime.administration.parts import Answers, Part, dividing, items_of, parts_in_turns
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from tests.support.worlds import virtual

MAKE_PARTITIONS = (CREATE_TOPICS, CREATE_PARTITIONS)
DIVIDED = [each for each in CHANGES if each.items is not None and each.items.at_once is not None]


def of(change: Change) -> Items:
    assert change.items is not None
    return change.items


def request_of(change: Change, numbers: list[int]) -> Any:
    """A request whose items are named by the numbers."""
    request = change.request(request_id=b"r" * 16)
    for number in numbers:
        if change is CREATE_TOPICS:
            request.topics.add(name=f"t{'.' if number % 2 else '_'}{number // 2}", partitions=20)
        elif change is DELETE_TOPICS and number % 3:
            request.names.append(f"t{number}")
        elif change is DELETE_TOPICS:
            request.topic_ids.append(number.to_bytes(16))
        elif change is ALTER_CONFIGS:
            altered = request.resources.add()
            altered.resource.name = f"t{number}"
            for _ in range(100):
                altered.changes.add(name="retention.ms", value="1")
        elif change is CREATE_ACLS:
            request.acls.add(resource_name=f"t{number}")
        elif change is ALTER_CLIENT_QUOTAS:
            entry = request.entries.add(ops=[pb.AlterClientQuotasRequest.Op(key="rate")])
            parts = [pb.QuotaEntity(type="user", name=f"u{number // 2}")]
            parts.append(pb.QuotaEntity(type="client-id"))
            entry.entity.extend(reversed(parts) if number % 2 else parts)
        elif change is CREATE_PARTITIONS:
            request.validate_only = True
            request.topics.add(name=f"t{number}", count=20)
        elif change is ELECT_LEADERS:
            request.unclean = True
            request.partitions.add(topic="t", partition=number)
        else:
            assert change is ALTER_PARTITION_REASSIGNMENTS
            request.keep_replication_factor = True
            request.partitions.add(topic="t", partition=number)
    return request


def parts_of(request: Any) -> list[Part]:
    return [part for some in dividing(request) for part in some]


@pytest.mark.parametrize("change", DIVIDED, ids=lambda change: change.name)
@given(numbers=st.lists(st.integers(0, 8), max_size=30) | st.just(list(range(1_200))))
def test_every_item_is_in_one_part_beside_the_items_it_may_collide_with(
    change: Change, numbers: list[int]
) -> None:
    items, request = of(change), request_of(change, numbers)
    every = list(items_of(items, request))
    parts = parts_of(request)
    assert sorted(place for part in parts for place in part.places) == list(range(len(every)))
    part_of_key: dict[Any, int] = {}
    for number, (part, places) in enumerate(parts):
        assert [item for _, item in items_of(items, part)] == [every[each][1] for each in places]
        for _, item in items_of(items, part):
            assert part_of_key.setdefault(items.key(item), number) == number
    if len(parts) > 1:
        assert items.at_once is not None
        for _, places in parts:
            works = [items.work(every[each][1]) for each in places]
            keys = {items.key(every[each][1]) for each in places}
            assert sum(works) <= items.at_once or len(keys) == 1
        rests = {fields_beside(items, part.request) for part in parts}
        assert rests == {fields_beside(items, request)}


def fields_beside(items: Items, request: Any) -> bytes:
    """All fields of a request but its items and its id."""
    copy = type(request)()
    copy.CopyFrom(request)
    for field in (*items.lists, "request_id"):
        copy.ClearField(field)
    return bytes(copy.SerializeToString(deterministic=True))


@pytest.mark.parametrize("change", DIVIDED, ids=lambda change: change.name)
def test_parts_have_ids_that_only_depend_on_the_request(change: Change) -> None:
    request = request_of(change, list(range(1_200)))
    ids = [part.request.request_id for part in parts_of(request)]
    assert ids[0] == request.request_id
    assert len(set(ids)) == len(ids) > 1
    assert {len(each) for each in ids} == {16}
    assert ids == [part.request.request_id for part in parts_of(request)]
    request.ClearField("request_id")
    assert {part.request.request_id for part in parts_of(request)} == {b""}


def test_names_that_collide_are_decided_together() -> None:
    """Also with other topics between them: validating one does not make it for the others."""
    request = pb.CreateTopicsRequest(validate_only=True)
    names = ["a.b", *(f"t{number}" for number in range(100)), "a_b"]
    for name in names:
        request.topics.add(name=name)
    together = [
        [topic.name for topic in part.request.topics if metric_name(topic.name) == "a_b"]
        for part in parts_of(request)
    ]
    assert together == [["a.b", "a_b"], []]


@pytest.mark.parametrize("change", DIVIDED, ids=lambda change: change.name)
@given(cut=st.integers(1, 3), numbers=st.just(list(range(1_200))))
def test_the_whole_answer_has_a_result_for_each_item_in_order(
    change: Change, cut: int, numbers: list[int]
) -> None:
    items, request = of(change), request_of(change, numbers)
    parts = parts_of(request)
    answers = Answers(request)
    assert answers.is_empty
    done = parts[:cut]
    for number, part in enumerate(done):
        answers.add(part, answered(change, part, metadata_offset=number))
    error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "too late")
    whole = answers.whole(error)
    assert (whole.metadata_offset, whole.already_done) == (len(done) - 1, True)
    told = getattr(whole, items.results)
    decided = {place for part in done for place in part.places}
    assert len(told) == len(list(items_of(items, request)))
    for place, ((_, item), result) in enumerate(zip(items_of(items, request), told, strict=True)):
        for name, value in items.named(item).items():
            assert getattr(result, name) == value
        late = (ErrorCode.REQUEST_TIMED_OUT, "too late")
        assert (result.error, result.message) == ((0, "") if place in decided else late)
    assert answers.made == (7 * len(decided) if change in MAKE_PARTITIONS else 0)


def answered(change: Change, part: Part, *, metadata_offset: int) -> Any:
    items = of(change)
    answer = change.response(metadata_offset=metadata_offset, already_done=True)
    for _, item in items_of(items, part.request):
        result = getattr(answer, items.results).add(**items.named(item))
        if change in MAKE_PARTITIONS:
            result.partitions = 7
    return answer


def test_an_answer_was_there_before_if_all_of_its_parts_were() -> None:
    request = request_of(DELETE_TOPICS, list(range(100)))
    first, second = parts_of(request)
    answers = Answers(request)
    answers.add(first, pb.DeleteTopicsResponse(already_done=True))
    answers.add(second, pb.DeleteTopicsResponse())
    assert not answers.whole().already_done


def test_a_small_request_and_one_of_the_cluster_are_one_decision() -> None:
    small = request_of(DELETE_TOPICS, [1, 2])
    assert parts_of(small) == [(small, range(2))]
    unregistered = pb.UnregisterBrokerRequest(broker_id=1)
    assert parts_of(unregistered) == [(unregistered, ())]


def test_the_controller_decides_about_every_change() -> None:
    assert set(DECISIONS) == set(CHANGES)
    assert max(Counter(each.method for each in CHANGES).values()) == 1
    assert all(change_of(each.request()) is each for each in CHANGES)
    assert CREATE_TOPICS.method == "/stele.v1.Admin/CreateTopics"


@pytest.mark.parametrize("change", DIVIDED, ids=lambda change: change.name)
@virtual
async def test_a_request_of_many_items_is_divided_in_turns(change: Change) -> None:
    request = request_of(change, list(range(10_000)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    parts = await parts_in_turns(request)
    counting.cancel()
    assert parts == parts_of(request)
    assert turns > 2 * 10_000 // 256


@virtual
async def test_a_small_request_is_divided_at_once() -> None:
    dividing = parts_in_turns(request_of(DIVIDED[0], [1]))
    with pytest.raises(StopIteration):
        dividing.send(None)
