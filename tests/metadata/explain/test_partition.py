"""Why a partition is as it is, from decisions that a real controller's machine made."""

from __future__ import annotations

import pytest

from metadata.explain.broker import broker_history, dependence
from metadata.explain.history import MetadataHistory
from metadata.explain.partition import Change, Diagnosis, Health, diagnose, partition_changes
from metadata.snapshot import records_of
from stele.ids import TopicPartition, encode_uuid
from tests.support.metadata_history import STEP_MS, Chronicle


@pytest.fixture
def chronicle() -> Chronicle:
    """Brokers 1 to 3, and topic t on all of them with min.insync.replicas=2."""
    made = Chronicle()
    made.brokers(1, 2, 3)
    made.do(lambda machine: machine.create("t", {0: [1, 2, 3]}, min_insync_replicas="2"))
    return made


def changes(chronicle: Chronicle) -> list[Change]:
    return partition_changes(chronicle.history, chronicle.topic("t"), 0)


def diagnosis(chronicle: Chronicle) -> Diagnosis:
    return diagnose(chronicle.history, chronicle.topic("t"), 0)


def test_a_new_partition_is_healthy(chronicle: Chronicle) -> None:
    assert [each.cause for each in changes(chronicle)] == ["it was created"]
    assert diagnosis(chronicle) == Diagnosis(Health.HEALTHY, (), ())


def test_a_leader_that_is_fenced(chronicle: Chronicle) -> None:
    chronicle.do(lambda machine: machine.fence(1))
    last = changes(chronicle)[-1]
    assert last.cause == "broker 1: it was fenced: its process ended or was silent"
    assert (last.state.leader, last.state.isr) == (2, (2, 3))
    assert last.time_ms == chronicle.now_ms
    told = diagnosis(chronicle)
    assert told.health is Health.UNDER_REPLICATED
    (reason,) = told.reasons
    assert reason.startswith("broker 1: it was fenced: its process ended or was silent (offset ")
    assert told.remedies == ("start broker 1; it joins the ISR when it has caught up",)


def test_an_orderly_shutdown_is_told_apart(chronicle: Chronicle) -> None:
    chronicle.do(lambda machine: machine.heartbeat(1, want_shutdown=True))
    assert changes(chronicle)[-1].cause == "broker 1: it began a controlled shutdown"


def test_a_log_directory_that_fails(chronicle: Chronicle) -> None:
    disk, text = b"d" * 16, encode_uuid(b"d" * 16)
    chronicle.do(lambda machine: machine.register(1, 1, log_directories=[disk, b"e" * 16]))
    chronicle.do(lambda machine: machine.heartbeat(1))
    chronicle.do(lambda machine: machine.assign(1, disk, machine.reference("t")))
    assert changes(chronicle)[-1].cause == "broker 1 told in which log directory its replica is"
    chronicle.do(lambda machine: machine.alter("t", 1, 2, 3))
    chronicle.do(lambda machine: machine.heartbeat(1, offline_directories=[disk]))
    assert changes(chronicle)[-1].cause == f"broker 1: its log directory {text} is offline"
    told = diagnosis(chronicle)
    assert told.reasons == (f"broker 1 serves, and its replica is in {text}, which is offline",)
    (remedy,) = told.remedies
    assert remedy.startswith("repair the log directory of broker 1's replica")
    assert chronicle.history.image.offline_replicas(chronicle.topic("t").partitions[0]) == [1]


def test_a_partition_that_is_lost_with_a_log_directory(chronicle: Chronicle) -> None:
    disk = b"d" * 16
    chronicle.do(lambda machine: machine.register(1, 1, log_directories=[disk, b"e" * 16]))
    chronicle.do(lambda machine: machine.heartbeat(1))
    chronicle.do(lambda machine: machine.create("alone", {0: [1]}))
    chronicle.do(lambda machine: machine.assign(1, disk, machine.reference("alone")))
    chronicle.do(lambda machine: machine.heartbeat(1, offline_directories=[disk]))
    told = diagnose(chronicle.history, chronicle.topic("alone"), 0)
    assert told.health is Health.OFFLINE
    which = encode_uuid(disk)
    assert told.reasons == (f"broker 1 serves, and its replica is in {which}, which is offline",)
    (remedy,) = told.remedies
    assert remedy.startswith("repair the log directory of broker 1's replica")


def test_a_follower_that_is_behind(chronicle: Chronicle) -> None:
    chronicle.do(lambda machine: machine.alter("t", 1, 2))
    assert changes(chronicle)[-1].cause == "leader 1 reported that [3] fell behind"
    told = diagnosis(chronicle)
    assert told.reasons == ("broker 3 serves, and is behind",)
    assert told.remedies[0].startswith("wait until [3] have caught up")
    chronicle.do(lambda machine: machine.alter("t", 1, 2, 3))
    assert changes(chronicle)[-1].cause == "leader 1 reported that [3] caught up"
    assert diagnosis(chronicle).health is Health.HEALTHY


def test_below_min_insync_replicas(chronicle: Chronicle) -> None:
    chronicle.do(lambda machine: machine.fence(2))
    chronicle.do(lambda machine: machine.fence(3))
    told = diagnosis(chronicle)
    assert told.health is Health.UNDER_MIN_ISR
    assert told.reasons[0] == "1 in sync, and min.insync.replicas asks for 2"
    assert told.remedies == (
        "start broker 2; it joins the ISR when it has caught up",
        "start broker 3; it joins the ISR when it has caught up",
    )


def test_offline_names_the_replicas_that_have_every_record(chronicle: Chronicle) -> None:
    for broker_id in (3, 2, 1):
        chronicle.do(lambda machine, each=broker_id: machine.fence(each))  # type: ignore[misc]
    told = diagnosis(chronicle)
    assert told.health is Health.OFFLINE
    assert told.remedies == (
        "start broker 1 or broker 2: every committed record is there, and it can lead at once",
    )
    assert [reason.partition(":")[0] for reason in told.reasons] == [
        "broker 1", "broker 2", "broker 3",
    ]  # fmt: skip


def test_offline_with_a_stale_replica_names_the_price(chronicle: Chronicle) -> None:
    chronicle.do(lambda machine: machine.alter("t", 1, 2))
    chronicle.do(lambda machine: machine.fence(2))
    chronicle.do(lambda machine: machine.fence(1))
    remedies = diagnosis(chronicle).remedies
    assert len(remedies) == 2
    assert "brokers [3] have a part of the records" in remedies[1]
    assert "stele topic elect t --unclean" in remedies[1]


def test_a_broker_that_comes_back_ends_it(chronicle: Chronicle) -> None:
    for broker_id in (3, 2, 1):
        chronicle.do(lambda machine, each=broker_id: machine.fence(each))  # type: ignore[misc]
    chronicle.do(lambda machine: machine.register(2, number=1))
    chronicle.do(lambda machine: machine.heartbeat(2))
    last = changes(chronicle)[-1]
    assert last.state.leader == 2
    assert "broker 2: it was unfenced: it serves" in last.cause


def test_an_unclean_election_is_named(chronicle: Chronicle) -> None:
    chronicle.do(
        lambda machine: machine.create(
            "u", {0: [1, 2]}, min_insync_replicas="1", unclean_leader_election_enable="true"
        )
    )
    chronicle.do(lambda machine: machine.alter("u", 1))
    chronicle.do(lambda machine: machine.fence(1))
    last = partition_changes(chronicle.history, chronicle.topic("u"), 0)[-1]
    assert last.cause.startswith("unclean election, records may be lost: broker 1: it was fenced")


def test_a_reassignment_that_is_complete_at_once_says_so(chronicle: Chronicle) -> None:
    chronicle.do(lambda machine: machine.reassign("t", 1, 3, 2))  # only their order is another
    assert changes(chronicle)[-1].cause == "a reassignment to [1, 3, 2] took effect at once"
    chronicle.do(lambda machine: machine.reassign("t", 3, 1, 2))
    assert changes(chronicle)[-1].cause == "a reassignment to [3, 1, 2] took effect at once"
    chronicle.do(lambda machine: machine.reassign("t", 1, 2))
    assert changes(chronicle)[-1].cause == "a reassignment to [1, 2] took effect at once"


def test_a_reassignment_begins_and_ends(chronicle: Chronicle) -> None:
    chronicle.brokers(4)
    chronicle.do(lambda machine: machine.reassign("t", 4, 2, 3))
    assert changes(chronicle)[-1].cause == "a reassignment to [4, 2, 3] began"
    chronicle.do(lambda machine: machine.alter("t", 1, 2, 3, 4))
    assert changes(chronicle)[-1].cause == "the reassignment ended with the replicas [4, 2, 3]"


def test_as_it_was_then(chronicle: Chronicle) -> None:
    before_ms = chronicle.now_ms
    chronicle.do(lambda machine: machine.fence(1))
    past = chronicle.history.until(before_ms)
    topic = past.image.topic("t")
    assert topic is not None
    assert diagnose(past, topic, 0).health is Health.HEALTHY
    assert chronicle.history.until(before_ms + STEP_MS).image == chronicle.history.image
    assert chronicle.history.until(0).image == chronicle.history.first_image


def test_what_a_snapshot_holds_is_where_it_begins(chronicle: Chronicle) -> None:
    image = chronicle.history.image
    history = MetadataHistory()
    history.take_snapshot(image.offset + 1, 5000, list(records_of(image)))
    (first,) = partition_changes(history, chronicle.topic("t"), 0)
    assert first.cause == "this was the state when the known history begins"
    assert (first.offset, first.time_ms) == (image.offset, 5000)
    assert history.image == image


def test_a_broker_and_what_depends_on_it(chronicle: Chronicle) -> None:
    chronicle.do(lambda machine: machine.create("alone", {0: [1]}))
    chronicle.do(lambda machine: machine.fence(1))
    assert [each.what for each in broker_history(chronicle.history, 1)] == [
        "it registered",
        "it was unfenced: it serves",
        "it was fenced: its process ended or was silent",
    ]
    depends = dependence(chronicle.history.image, 1)
    alone, partition = TopicPartition("alone", 0), TopicPartition("t", 0)
    assert depends.leads == ()
    assert depends.waiting == (alone,)
    assert depends.behind == (partition,)
    assert depends.in_sync == (alone,)
    assert dependence(chronicle.history.image, 2).leads == (partition,)
