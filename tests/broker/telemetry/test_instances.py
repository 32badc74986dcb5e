"""The instances of clients: when they may ask and push, what they are told, when they go."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.telemetry import instances as room
from broker.telemetry.instances import ClientInstances, Instance, Push, check_instance_id
from broker.telemetry.subscriptions import Wanted, subscription_id
from stele.errors import ApiError, ErrorCode

WANTED = (Wanted(("a.",), 1_000), Wanted(("*",), 40_000), Wanted((), 1_000))
MAX_BYTES = 100
A, B, C, D = (bytes([each] * 16) for each in range(2, 6))
ZSTD, UNKNOWN_CODEC = 4, 5

Result = tuple[bytes, int] | ErrorCode


def push(
    instance_id: bytes = A,
    subscription: int | None = None,
    *,
    terminating: bool = False,
    compression: int = ZSTD,
    size: int = MAX_BYTES,
) -> Push:
    if subscription is None:
        subscription = subscription_id(WANTED[0], instance_id)
    return Push(instance_id, subscription, terminating, compression, size)


class Bench:
    """The room as the service uses it."""

    def __init__(self) -> None:
        self.instances = ClientInstances(max_bytes=MAX_BYTES)
        self.now_s = 0.0
        self.version = 1
        self.wanted = WANTED[0]

    def _see(self, instance_id: bytes, connection: str) -> None:
        known = self.instances.knows(instance_id, self.version, self.now_s)
        wanted = None if known else self.wanted
        self.instances.seen(instance_id, connection, self.now_s, wanted, self.version)

    def ask(self, instance_id: bytes = A, connection: str = "x") -> Instance:
        self._see(instance_id, connection)
        return self.instances.ask(instance_id, self.now_s)

    def push(self, request: Push, connection: str = "x") -> Instance:
        self._see(request.instance_id, connection)
        return self.instances.push(request, self.now_s)

    def subscribe(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.version += 1


def refused(bench: Bench, request: Push | bytes) -> tuple[ErrorCode, str]:
    with pytest.raises(ApiError) as error:
        bench.push(request) if isinstance(request, Push) else bench.ask(request)
    return ErrorCode(error.value.code), error.value.message


# ------------------------------------------------------------------------------ a dumb twin


class Twin:
    """Says the same from all requests that ever came, without any state but them."""

    def __init__(self) -> None:
        self.live: list[dict[str, object]] = []  # the one seen last is last
        self.version = 1
        self.wanted = WANTED[0]

    def _find(self, instance_id: bytes) -> dict[str, object] | None:
        return next((each for each in self.live if each["id"] == instance_id), None)

    def request(
        self, kind: str, instance_id: bytes, connection: str, now: float, asked: Push
    ) -> Result:
        self.live = [each for each in self.live if float(str(each["expires"])) > now]
        found = self._find(instance_id)
        if found is None:
            found = {"id": instance_id, "over": False, "wanted": None}
        else:
            self.live.remove(found)
        if found["wanted"] != self.wanted:
            found.update(wanted=self.wanted, history=[], error=None)
        interval = self.wanted.interval_ms / 1000
        found["connection"] = connection
        found["expires"] = now + max(60.0, 3 * interval)
        self.live.append(found)
        together = [each for each in self.live if each["connection"] == connection]
        for each in together[: -room.PER_CONNECTION_MAX]:
            self.live.remove(each)
        del self.live[: -room.INSTANCES_MAX]
        history = found["history"]
        assert isinstance(history, list)
        told = subscription_id(self.wanted, instance_id)
        if kind == "ask":
            early = any(now - at < interval for what, at in history if what != "again")
            if early and found["error"] not in (117, 76):
                return ErrorCode.THROTTLING_QUOTA_EXCEEDED
            history.append(("again" if early else "ask", now))
            found["error"] = None
            return instance_id, told
        code = self._push(found, history, asked, now, interval, told)
        found["over"] = bool(found["over"]) or asked.is_terminating
        found["error"] = None if code is None else int(code)
        return (instance_id, told) if code is None else code

    def _push(
        self,
        found: dict[str, object],
        history: list[tuple[str, float]],
        asked: Push,
        now: float,
        interval: float,
        told: int,
    ) -> ErrorCode | None:
        if found["over"]:
            return ErrorCode.INVALID_REQUEST
        pushes = [at for kind, at in history if kind == "push"]
        just_asked = bool(history) and history[-1][0] != "push"
        if just_asked or not pushes or now - pushes[-1] >= interval:
            history.append(("push", now))
        elif not asked.is_terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if asked.subscription_id != told:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if asked.compression == UNKNOWN_CODEC:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.TELEMETRY_TOO_LARGE if asked.size_bytes > MAX_BYTES else None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "push", "push", "subscribe", "lose"]),
        st.sampled_from([A, B, C, D]),
        st.sampled_from(["x", "y", "z"]),
        st.sampled_from([0.0, 0.25, 0.5, 1.0, 59.0, 61.0]),
        st.sampled_from(WANTED),
        st.sampled_from([ZSTD, ZSTD, ZSTD, UNKNOWN_CODEC]),
        st.sampled_from([1, MAX_BYTES, MAX_BYTES + 1]),
        st.integers(0, 9).map(lambda each: each == 0),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_every_answer_is_that_of_a_dumb_twin(steps: list[tuple[object, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "INSTANCES_MAX", 3)
        patch.setattr(room, "PER_CONNECTION_MAX", 2)
        _compare(steps)


def _compare(steps: list[tuple[object, ...]]) -> None:
    bench, twin = Bench(), Twin()
    for kind, instance_id, connection, pause_s, wanted, compression, size, over in steps:
        assert isinstance(instance_id, bytes)
        assert isinstance(wanted, Wanted)
        assert isinstance(pause_s, float)
        bench.now_s += pause_s
        if kind == "subscribe":
            bench.subscribe(wanted)
            twin.wanted = wanted
            continue
        if kind == "lose":
            bench.instances.disconnected(connection)
            twin.live = [each for each in twin.live if each["connection"] != connection]
            continue
        told = subscription_id(wanted, instance_id)
        asked = Push(instance_id, told, bool(over), int(str(compression)), int(str(size)))
        answer: Result
        try:
            if kind == "ask":
                instance = bench.ask(instance_id, str(connection))
            else:
                instance = bench.push(asked, str(connection))
            answer = instance.instance_id, instance.subscription_id
        except ApiError as error:
            answer = ErrorCode(error.code)
        assert answer == twin.request(str(kind), instance_id, str(connection), bench.now_s, asked)
        assert bench.instances.count(bench.now_s) == len(twin.live)
        assert {each["id"] for each in twin.live} == {
            each for each in (A, B, C, D) if each in bench.instances
        }


# ------------------------------------------------------------------------------ examples


def test_the_first_push_may_come_at_once_and_the_next_after_the_interval() -> None:
    bench = Bench()
    bench.ask()
    bench.push(push())
    bench.now_s = 0.999
    code, message = refused(bench, push())
    assert code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert message.endswith("comes before its interval of 1000 ms is over")
    assert refused(bench, A)[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert bench.instances.throttled == 2
    bench.now_s = 1.0
    bench.push(push())


def test_a_client_may_ask_again_when_its_interval_is_over() -> None:
    bench = Bench()
    for bench.now_s in (0.1, 1.1, 2.1):  # 1.1 - 0.1 is a little more than 1, 2.1 - 1.1 too
        bench.ask()
    bench.now_s = 3.0999
    bench.ask()
    bench.now_s = 4.099
    assert refused(bench, A)[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_refused_request_does_not_begin_the_interval_anew() -> None:
    bench = Bench()
    bench.ask()
    bench.push(push())
    for bench.now_s in (0.5, 0.75):
        refused(bench, push())
    bench.now_s = 1.0
    bench.push(push())


def test_a_changed_subscription_is_told_at_once() -> None:
    bench = Bench()
    bench.ask()
    bench.push(push())
    bench.subscribe(WANTED[1])
    bench.now_s = 1.0
    code, message = refused(bench, push())
    assert code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert "ask for the new one" in message
    assert bench.instances.unknown_subscriptions == 1
    assert bench.ask().wanted == WANTED[1]
    bench.push(push(subscription=subscription_id(WANTED[1], A)))


def test_a_change_that_leaves_a_client_what_it_has_resets_nothing() -> None:
    bench = Bench()
    bench.ask()
    bench.push(push())
    bench.subscribe(Wanted(*WANTED[0]))
    bench.now_s = 0.5
    assert refused(bench, push())[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_after_an_unknown_codec_a_client_asks_at_once() -> None:
    bench = Bench()
    bench.ask()
    code, message = refused(bench, push(compression=UNKNOWN_CODEC))
    assert (code, message) == (
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        "there is no compression type 5",
    )
    bench.ask()
    assert refused(bench, A)[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "and not again"


def test_a_push_is_bounded() -> None:
    bench = Bench()
    bench.push(push(size=MAX_BYTES))
    bench.now_s = 1.0
    code, message = refused(bench, push(size=MAX_BYTES + 1))
    assert code is ErrorCode.TELEMETRY_TOO_LARGE
    assert message == "101 bytes of metrics: telemetry.max.bytes is 100"


def test_the_last_push_comes_early_and_nothing_after_it() -> None:
    bench = Bench()
    bench.ask()
    bench.push(push())
    bench.push(push(terminating=True))
    bench.now_s = 10.0
    for request in (push(), push(terminating=True)):
        code, message = refused(bench, request)
        assert code is ErrorCode.INVALID_REQUEST
        assert message.endswith("has sent its last push")


def test_an_instance_that_is_not_known_may_push() -> None:
    """A client asks one broker and pushes to another one, or its instance was forgotten."""
    assert Bench().push(push()).wanted == WANTED[0]
    assert refused(Bench(), push(subscription=7))[0] is ErrorCode.UNKNOWN_SUBSCRIPTION_ID


def test_metrics_that_could_not_be_used_are_noted() -> None:
    bench = Bench()
    instance = bench.push(push())
    bench.instances.failed(A, ErrorCode.INVALID_RECORD)
    assert instance.last_error is ErrorCode.INVALID_RECORD
    bench.instances.failed(B, ErrorCode.INVALID_RECORD)  # it was forgotten meanwhile
    assert B not in bench.instances


@pytest.mark.parametrize(("wanted", "silence_s"), [(WANTED[0], 60.0), (WANTED[1], 120.0)])
def test_a_silent_instance_expires(wanted: Wanted, silence_s: float) -> None:
    bench = Bench()
    bench.subscribe(wanted)
    bench.ask()
    bench.now_s = 50.0
    bench.push(push(subscription=subscription_id(wanted, A)))
    assert bench.instances.count(50.0 + silence_s - 0.01) == 1
    assert bench.instances.count(50.0 + silence_s) == 0


def test_an_instance_expires_by_its_newest_interval() -> None:
    bench = Bench()
    bench.subscribe(WANTED[1])  # it would be forgotten after 120 s
    bench.ask()
    bench.subscribe(WANTED[0])
    bench.ask()
    assert bench.instances.count(59.9) == 1
    assert bench.instances.count(60.0) == 0
    bench.now_s = 130.0  # the entry of the longer interval is over, too
    bench.ask()
    assert bench.instances.count(189.9) == 1
    assert bench.instances.count(190.0) == 0


def test_an_instance_goes_with_its_last_connection() -> None:
    bench = Bench()
    bench.ask(A, "old")
    bench.ask(B, "old")
    bench.push(push(A), "new")
    bench.instances.disconnected("old")
    assert (A in bench.instances, B in bench.instances) == (True, False)
    bench.instances.disconnected("old")
    bench.instances.disconnected("new")
    assert len(bench.instances) == 0


def test_ids_that_mean_something_else_are_refused() -> None:
    for reserved in (bytes(16), bytes(15) + b"\x01"):
        with pytest.raises(ApiError, match="ask for a subscription first") as error:
            check_instance_id(reserved)
        assert error.value.code == ErrorCode.INVALID_REQUEST
    check_instance_id(bytes(15) + b"\x02")


def test_a_flood_of_new_instances_keeps_memory_bounded() -> None:
    """One connection, and each request another id and another subscription in force. Entries of
    instances that were forgotten go long before their expiry."""
    bench = Bench()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "INSTANCES_MAX", 20)
        for number in range(500):
            bench.subscribe(Wanted((f"m.{number}.",), 3_600_000))
            bench.ask(number.to_bytes(16), f"{number % 3}")
            bench.now_s += 0.001
        assert len(bench.instances) == 20
    sizes = [len(value) for value in vars(bench.instances).values() if hasattr(value, "__len__")]
    assert max(sizes) <= 41, sizes


def test_a_connection_has_few_instances_and_keeps_the_newest() -> None:
    bench = Bench()
    for number in range(2, room.PER_CONNECTION_MAX + 3):
        bench.ask(number.to_bytes(16))
    bench.ask(B, "other")
    assert (2).to_bytes(16) not in bench.instances
    assert len(bench.instances) == room.PER_CONNECTION_MAX + 1


def test_equal_subscriptions_are_one_object() -> None:
    bench = Bench()
    first = bench.ask(A)
    bench.wanted = Wanted(*WANTED[0])
    assert bench.ask(B).wanted is first.wanted
    assert sys.getsizeof(first) < 200
