"""A request with an id takes effect once, and gets the same answer however often it comes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import configs, elections, request_ids, topics
from controller.machine import Context, ControllerResult
from controller.request_ids import REFUSED_SHARE, Refusals, begin, once
from metadata import delta
from metadata.delta import replay_values
from metadata.image import MetadataImage
from metadata.outcomes import LIMITS, REPEAT_MS, Limits
from metadata.records import encode
from metadata.snapshot import image_of, records_of
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.controller import CLUSTER_ID, Machine, refusal

ID = b"i" * 16


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.brokers(1)
    return machine


def creation(*names: str, request_id: bytes = ID, **more: Any) -> admin.CreateTopicsRequest:
    wanted = [admin.NewTopic(name=name, partitions=1, replication_factor=1) for name in names]
    return admin.CreateTopicsRequest(topics=wanted, request_id=request_id, **more)


def create(
    machine: Machine,
    request: admin.CreateTopicsRequest,
    refusals: Refusals | None = None,
    *,
    repeats: bool = False,
) -> admin.CreateTopicsResponse:
    reply = admin.CreateTopicsResponse
    known = refusals or Refusals()
    return machine.do(
        lambda context: once(
            context,
            "CreateTopics",
            request,
            reply,
            topics.create_topics,
            known,
            repeats=repeats,
        )
    )


def delete(machine: Machine, name: str) -> None:
    deletion = admin.DeleteTopicsRequest(names=[name])
    machine.do(lambda context: topics.delete_topics(context, deletion))


def test_the_same_request_twice_makes_one_topic_and_says_so(machine: Machine) -> None:
    first = create(machine, creation("a"))
    assert not first.already_done
    second = create(machine, creation("a"))
    assert not machine.last_records
    assert second.already_done
    second.already_done = False
    assert second == first
    assert second.topics[0].topic_id == machine.image.topics.ids["a"]


def test_decision_and_outcome_are_one_batch(machine: Machine) -> None:
    create(machine, creation("a"))
    kinds = [record.WhichOneof("record") for record in machine.last_records]  # type: ignore[attr-defined]
    assert kinds == ["topic", "partition", "request_outcome"]


def test_a_refusal_writes_nothing_and_stays_a_refusal_at_its_controller(machine: Machine) -> None:
    create(machine, creation("a", request_id=b"1" * 16))
    refusals = Refusals()
    refused = create(machine, creation("a", request_id=b"2" * 16), refusals)
    assert refused.topics[0].error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert not machine.last_records
    deletion = admin.DeleteTopicsRequest(names=["a"])
    machine.do(lambda context: topics.delete_topics(context, deletion))
    again = create(machine, creation("a", request_id=b"2" * 16), refusals)
    assert again.already_done
    assert again.topics[0].error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert machine.image.topic("a") is None
    other = creation("b", request_id=b"2" * 16)
    error = refusal(lambda: create(machine, other, refusals))
    assert error.code is ErrorCode.INVALID_REQUEST, "the id belongs to the refused request"
    refusals.forget()  # as a controller that leads no more
    assert not create(machine, creation("a", request_id=b"2" * 16), refusals).topics[0].error


def test_the_refusal_of_a_copy_refuses_the_others_at_every_controller(machine: Machine) -> None:
    create(machine, creation("a", request_id=b"1" * 16))
    refused = create(machine, creation("a", request_id=b"2" * 16), repeats=True)
    assert refused.topics[0].error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert not refused.already_done
    delete(machine, "a")
    first = create(machine, creation("a", request_id=b"2" * 16), Refusals())
    assert first.already_done
    assert first.topics == refused.topics
    assert machine.image.topic("a") is None


def test_a_copy_of_what_only_this_controller_refused_is_refused_everywhere(
    machine: Machine,
) -> None:
    """Otherwise a third copy, which is older than this one, could still be accepted."""
    create(machine, creation("a", request_id=b"1" * 16))
    refusals = Refusals()
    create(machine, creation("a", request_id=b"2" * 16), refusals)
    assert not machine.last_records
    again = create(machine, creation("a", request_id=b"2" * 16), refusals, repeats=True)
    assert again.already_done
    delete(machine, "a")
    assert create(machine, creation("a", request_id=b"2" * 16), Refusals()).already_done
    create(machine, creation("a", request_id=b"2" * 16), refusals, repeats=True)
    assert not machine.last_records, "it is written once"
    assert machine.image.topic("a") is None


def test_refused_copies_take_a_part_of_the_memory_and_of_more_nothing_is_claimed(
    machine: Machine,
) -> None:
    create(machine, creation("a"))
    refusals = Refusals()
    refuse = partial(create, machine, refusals=refusals, repeats=True)
    most = LIMITS.outcomes // REFUSED_SHARE
    for number in range(most):
        assert refuse(creation("a", request_id=number.to_bytes(16, "big"))).topics[0].error
    one_more = creation("a", request_id=b"m" * 16)
    error = refusal(lambda: refuse(one_more))
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert "too many refusals are remembered" in error.message
    assert len(machine.image.outcomes) == most + 1
    assert not create(machine, creation("b", request_id=b"b" * 16), refusals).topics[0].error
    machine.now_ms = REPEAT_MS
    assert refuse(one_more).topics[0].error == ErrorCode.TOPIC_ALREADY_EXISTS


def test_long_refusals_of_copies_take_a_part_of_the_memory(machine: Machine) -> None:
    most = LIMITS.reply_bytes // REFUSED_SHARE

    def decide(_: Context, __: admin.ElectLeadersRequest) -> ControllerResult[Any]:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "x" * (most // 2 - 100))

    refusals = Refusals()

    def refuse(number: int) -> admin.ElectLeadersResponse:
        request = admin.ElectLeadersRequest(request_id=bytes([number]) * 16)
        reply = admin.ElectLeadersResponse
        answer: admin.ElectLeadersResponse = machine.do(
            lambda context: once(
                context, "ElectLeaders", request, reply, decide, refusals, repeats=True
            )
        )
        return answer

    assert [refuse(number).error for number in (1, 2)] == [ErrorCode.POLICY_VIOLATION] * 2
    assert refusal(lambda: refuse(3)).code is ErrorCode.REQUEST_TIMED_OUT
    refusals.forget()  # another controller leads
    assert refuse(3).error == ErrorCode.POLICY_VIOLATION


def test_a_request_that_is_granted_in_part_is_remembered_as_a_whole(machine: Machine) -> None:
    create(machine, creation("a", request_id=b"1" * 16))
    answer = create(machine, creation("a", "b", request_id=b"2" * 16))
    again = create(machine, creation("a", "b", request_id=b"2" * 16))
    assert again.already_done
    assert again.topics == answer.topics


def test_what_is_so_already_is_remembered(machine: Machine) -> None:
    """Otherwise a late copy could undo what others have changed since."""
    create(machine, creation("a"))
    change = admin.AlterConfigsRequest.Change(name="retention.ms", value="5")
    resource = admin.AlterConfigsRequest.Resource(
        resource=admin.ConfigResource(type=pb.ConfigResourceType.TOPIC, name="a"),
        changes=[change],
    )

    def alter(request_id: bytes) -> admin.AlterConfigsResponse:
        request = admin.AlterConfigsRequest(resources=[resource], request_id=request_id)
        reply = admin.AlterConfigsResponse
        return machine.do(
            lambda context: once(
                context, "AlterConfigs", request, reply, configs.alter_configs, Refusals()
            )
        )

    alter(b"1" * 16)
    assert not alter(b"2" * 16).already_done
    assert alter(b"2" * 16).already_done


def test_a_request_refused_as_a_whole_stays_refused(machine: Machine) -> None:
    allowed = [False, True]
    refusals = Refusals()

    def decide(
        context: Context, request: admin.ElectLeadersRequest
    ) -> ControllerResult[admin.ElectLeadersResponse]:
        if not allowed.pop(0):
            raise ApiError(ErrorCode.POLICY_VIOLATION, "not today")
        return elections.elect_leaders(context, request)

    request = admin.ElectLeadersRequest(request_id=ID)
    for _ in range(2):
        answer = machine.do(
            lambda context: once(
                context, "ElectLeaders", request, admin.ElectLeadersResponse, decide, refusals
            )
        )
        assert (answer.error, answer.message) == (ErrorCode.POLICY_VIOLATION, "not today")


def test_an_id_belongs_to_one_request(machine: Machine) -> None:
    create(machine, creation("a"))
    error = refusal(lambda: create(machine, creation("b")))
    assert error.code is ErrorCode.INVALID_REQUEST
    assert f"{ID.hex()} belongs to another request (CreateTopics)" in error.message
    alter = admin.AlterConfigsRequest(request_id=ID)
    error = refusal(
        lambda: machine.do(
            lambda context: once(
                context,
                "AlterConfigs",
                alter,
                admin.AlterConfigsResponse,
                configs.alter_configs,
                Refusals(),
            )
        )
    )
    assert error.code is ErrorCode.INVALID_REQUEST


def started(machine: Machine, content: bytes = b"remove 3", request_id: bytes = ID) -> bool:
    return machine.do(lambda context: begin(context, "RemoveVoter", request_id, content))


def test_what_is_no_metadata_begins_once_also_after_a_snapshot(machine: Machine) -> None:
    assert started(machine)
    assert not started(machine)
    assert not machine.last_records
    machine.image = image_of(machine.image.offset + 1, list(records_of(machine.image)))
    assert not started(machine)
    assert started(machine, request_id=b"j" * 16)


def test_the_id_of_what_has_begun_belongs_to_it(machine: Machine) -> None:
    started(machine)
    for misuse in (
        lambda: started(machine, b"remove 4"),
        lambda: started(machine, request_id=b"short"),
        lambda: create(machine, creation("a")),
    ):
        assert refusal(misuse).code is ErrorCode.INVALID_REQUEST


def test_the_order_of_configs_does_not_make_another_request(machine: Machine) -> None:
    one, other = creation("a"), creation("a")
    one.topics[0].configs.update({"retention.ms": "1", "min.insync.replicas": "1"})
    other.topics[0].configs.update({"min.insync.replicas": "1", "retention.ms": "1"})
    create(machine, one)
    assert create(machine, other).already_done


@pytest.mark.parametrize("request_id", [b"short", bytes(17)])
def test_an_id_has_16_bytes(machine: Machine, request_id: bytes) -> None:
    error = refusal(lambda: create(machine, creation("a", request_id=request_id)))
    assert error.code is ErrorCode.INVALID_REQUEST
    assert machine.image.topic("a") is None


def test_what_only_asks_is_not_remembered(machine: Machine) -> None:
    create(machine, creation("a", validate_only=True))
    assert not machine.last_records
    assert not create(machine, creation("a")).already_done


def test_without_an_id_nothing_is_remembered(machine: Machine) -> None:
    create(machine, creation("a", request_id=b""))
    assert not len(machine.image.outcomes)
    second = create(machine, creation("a", request_id=b""))
    assert second.topics[0].error == ErrorCode.TOPIC_ALREADY_EXISTS


def test_before_level_2_nothing_is_remembered(machine: Machine) -> None:
    level = pb.FeatureLevelRecord(name="metadata.version", level=1)
    machine.image = replay_values(
        machine.image, machine.next_offset, [encode(pb.MetadataRecord(feature_level=level))]
    )
    machine.next_offset += 1
    create(machine, creation("a"))
    assert started(machine)
    assert started(machine)
    assert not len(machine.image.outcomes)


# ------------------------------------------------------------------ among lost leaderships


@dataclass
class Quorum:
    """A log of decisions. Those after ``committed`` may still be lost."""

    rng: random.Random
    image: MetadataImage  # committed
    next_offset: int
    under_way: list[tuple[list[bytes], MetadataImage, int]] = field(default_factory=list)
    # The dumb twin: by request, all its answers, and how often it took effect.
    answers: dict[bytes, list[bytes]] = field(default_factory=dict)
    answers_of_copies: dict[bytes, list[bytes]] = field(default_factory=dict)
    effects: Counter[bytes] = field(default_factory=Counter)
    outcomes: Counter[bytes] = field(default_factory=Counter)  # how many are in the log
    waiting: list[tuple[int, bytes, bytes, bool]] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)

    @property
    def newest(self) -> MetadataImage:
        return self.under_way[-1][1] if self.under_way else self.image

    def ask(
        self, method: str, request: Any, reply_type: Any, decide: Any, *, repeats: bool
    ) -> None:
        end = self.under_way[-1][2] if self.under_way else self.next_offset
        context = Context(self.newest, end, {}, self.rng, CLUSTER_ID)
        result = once(context, method, request, reply_type, decide, self.refusals, repeats=repeats)
        if result.records:
            values = [encode(record) for record in result.records]
            self.under_way.append((values, result.image, end + len(values)))
        result.reply.already_done = False
        answer = result.reply.SerializeToString(deterministic=True)
        self.waiting.append((len(self.under_way), request.request_id, answer, repeats))
        self.settle()

    def commit(self, count: int) -> None:
        for values, image, end in self.under_way[:count]:
            assert replay_values(self.image, self.next_offset, values) == image
            self.image, self.next_offset = image, end
            for value in values:
                record = pb.MetadataRecord.FromString(value)
                outcome = record.request_outcome
                if outcome.request_id:
                    self.outcomes[outcome.request_id] += 1
                    self.effects[outcome.request_id] += not refused(outcome.method, outcome.reply)
        del self.under_way[:count]
        self.waiting = [(position - count, *rest) for position, *rest in self.waiting]  # type: ignore[misc]
        self.settle()

    def settle(self) -> None:
        """Answer the requests that need not wait any more."""
        for position, request_id, answer, repeats in self.waiting:
            if position <= 0:
                self.answers.setdefault(request_id, []).append(answer)
                if repeats:
                    self.answers_of_copies.setdefault(request_id, []).append(answer)
        self.waiting = [each for each in self.waiting if each[0] > 0]

    def lose_leadership(self) -> None:
        """Lose the leadership. The next leader has some of the decisions under way, and waiting
        requests get no answer."""
        self.waiting = []
        self.refusals.forget()
        self.commit(self.rng.randint(0, len(self.under_way)))
        self.under_way = []

    def restart_from_a_snapshot(self) -> None:
        self.lose_leadership()
        restored = image_of(self.image.offset + 1, list(records_of(self.image)))
        assert restored == self.image
        self.image = restored


def draw_request(rng: random.Random) -> tuple[str, Any, Any, Any]:
    name, request_id = rng.choice("abc"), rng.randbytes(16)
    if rng.random() < 0.5:
        request = creation(name, request_id=request_id)
        return "CreateTopics", request, admin.CreateTopicsResponse, topics.create_topics
    deletion = admin.DeleteTopicsRequest(names=[name], request_id=request_id)
    return "DeleteTopics", deletion, admin.DeleteTopicsResponse, topics.delete_topics


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_each_request_takes_effect_once_and_its_answers_agree(seed: int) -> None:
    rng = random.Random(seed)
    machine = Machine(seed=seed)
    machine.brokers(1)
    quorum = Quorum(rng, machine.image, machine.next_offset)
    asked: list[tuple[str, Any, Any, Any]] = []
    late: list[tuple[str, Any, Any, Any]] = []  # their first copies are on the way
    for _ in range(60):
        step = rng.random()
        if step < 0.35 or not asked:
            asked.append(draw_request(rng))
            if rng.random() < 0.4:
                late.append(asked[-1])
            else:
                quorum.ask(*asked[-1], repeats=False)
        elif step < 0.6:
            quorum.ask(*rng.choice(asked), repeats=True)
        elif step < 0.7 and late:
            quorum.ask(*late.pop(rng.randrange(len(late))), repeats=False)
        elif step < 0.9:
            quorum.commit(rng.randint(0, len(quorum.under_way)))
        elif step < 0.96:
            quorum.lose_leadership()
        else:
            quorum.restart_from_a_snapshot()
    for request in asked:  # and in the end everybody learns what became of it
        quorum.ask(*request, repeats=True)
    quorum.commit(len(quorum.under_way))
    for method, request, _, _ in asked:
        assert quorum.outcomes[request.request_id] == 1
        assert len({*quorum.answers_of_copies[request.request_id]}) == 1, "the outcome"
        given_answers = {*quorum.answers[request.request_id]}
        granted = {answer for answer in given_answers if not refused(method, answer)}
        assert len(granted) == quorum.effects[request.request_id], (request, given_answers)


def refused(method: str, answer: bytes) -> bool:
    creates = method == "CreateTopics"
    reply = admin.CreateTopicsResponse() if creates else admin.DeleteTopicsResponse()
    reply.ParseFromString(answer)
    return bool(reply.topics[0].error)


SMALL = Limits(3, 1000)


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "LIMITS", SMALL)
    monkeypatch.setattr(request_ids, "LIMITS", SMALL)


@pytest.mark.usefixtures("small_memory")
def test_the_memory_is_bounded_and_nothing_is_pushed_out_that_may_be_repeated(
    machine: Machine,
) -> None:
    for number in range(3):
        machine.now_ms = 1000 * number
        create(machine, creation(f"t{number}", request_id=bytes([number]) * 16))
    for _ in range(5):
        error = refusal(lambda: create(machine, creation("more", request_id=b"m" * 16)))
        assert error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert "try again in 299 s" in error.message
        assert machine.image.topic("more") is None
    machine.now_ms = REPEAT_MS
    assert not create(machine, creation("more", request_id=b"m" * 16)).already_done
    assert len(machine.image.outcomes) == 3
    machine.now_ms += 500
    assert refusal(lambda: started(machine)).code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    machine.now_ms += 500
    assert started(machine)
    forgotten = create(machine, creation("t0", request_id=bytes(16)))
    assert forgotten.topics[0].error == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.usefixtures("small_memory")
def test_a_clock_that_was_far_ahead_refuses_nobody_for_long(machine: Machine) -> None:
    machine.now_ms = 10 * REPEAT_MS
    for number in range(3):
        create(machine, creation(f"t{number}", request_id=bytes([number]) * 16))
    machine.now_ms = 1
    assert not create(machine, creation("more", request_id=b"m" * 16)).topics[0].error


def test_refused_requests_do_not_push_outcomes_out(machine: Machine) -> None:
    create(machine, creation("a"))
    refusals = Refusals()
    before = machine.image
    for number in range(LIMITS.outcomes + 1):
        request = creation("a", request_id=number.to_bytes(16, "big"))
        assert create(machine, request, refusals).topics[0].error
    assert machine.image is before
    assert create(machine, creation("a"), refusals).already_done


def test_an_answer_that_is_too_long_to_be_remembered_refuses_its_request(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_ids, "REPLY_BYTES_MAX", 10)
    assert refusal(lambda: create(machine, creation("long"))).code is ErrorCode.POLICY_VIOLATION
    assert machine.image.topic("long") is None
