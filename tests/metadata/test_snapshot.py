"""The records of a snapshot lead to the image from which they were made."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from metadata.acls import acls_of
from metadata.brokers import (
    BrokerRegistration,
    Brokers,
    DirectoryUse,
    Endpoint,
    UnregisteredBroker,
)
from metadata.client_quotas import ClientQuotas
from metadata.configs import ConfigResource, Configs
from metadata.controllers import Controllers
from metadata.delegation_tokens import DelegationTokens
from metadata.delta import MetadataDelta
from metadata.directories import LOST, UNASSIGNED, compact
from metadata.feature_levels import FeatureLevels, FeatureRange
from metadata.image import EMPTY, MetadataImage
from metadata.outcomes import Outcomes, RequestOutcome
from metadata.partitions import RECOVERED, RECOVERING, PartitionState
from metadata.producer_ids import ProducerIds
from metadata.records import METADATA_VERSION_LEVEL, MetadataError
from metadata.scram_credentials import ScramCredentials
from metadata.snapshot import image_of, records_of
from metadata.topics import Topic, Topics
from tests.support.acls import ACLS
from tests.support.client_quotas import ENTITIES
from tests.support.client_quotas import VALUES as QUOTA_VALUES
from tests.support.metadata import metric_names
from tests.support.scram import CREDENTIALS, USERS
from tests.support.tokens import TOKENS


def outcomes_of(found: dict[bytes, tuple[str, bytes, bytes]]) -> Outcomes:
    outcomes = Outcomes()
    for request_id, rest in found.items():
        outcomes = outcomes.with_(RequestOutcome(request_id, *rest))
    return outcomes


FEW = st.lists(st.integers(0, 9), unique=True, max_size=3)
ASCENDING = FEW.map(lambda ids: tuple(sorted(ids)))
TEXT = st.text("abc.-", min_size=1, max_size=4)
IDS = st.binary(min_size=16, max_size=16)

PLACES = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from([UNASSIGNED, LOST, b"a" * 16, b"b" * 16])),
    unique_by=lambda place: place[0],
    max_size=3,
)


def partition_of(places: list[tuple[int, bytes]], **more: Any) -> PartitionState:
    """``places``: the replicas, with their directories."""
    replicas = tuple(broker for broker, _ in places)
    return PartitionState(replicas, directories=compact([each for _, each in places]), **more)


PARTITIONS = st.builds(
    partition_of,
    places=PLACES,
    isr=ASCENDING,
    leader=st.integers(-1, 9),
    leader_epoch=st.integers(0, 99),
    partition_epoch=st.integers(0, 99),
    elr=ASCENDING,
    last_known_elr=ASCENDING,
    adding_replicas=ASCENDING,
    removing_replicas=ASCENDING,
    original_replicas=FEW.map(tuple),
    leader_recovery_state=st.sampled_from([RECOVERED, RECOVERING]),
    unclean_elections=st.integers(0, 3),
)
BROKERS = st.builds(
    BrokerRegistration,
    broker_id=st.integers(0, 9),
    broker_epoch=st.integers(0, 99),
    incarnation_id=IDS,
    endpoints=st.lists(
        st.builds(Endpoint, TEXT, TEXT, st.integers(1, 65535), st.sampled_from(["PLAINTEXT"])),
        max_size=2,
    ).map(tuple),
    rack=st.none() | TEXT,
    log_directories=st.lists(IDS, max_size=2).map(tuple),
    features=st.lists(
        st.builds(FeatureRange, TEXT, st.integers(0, 9), st.integers(0, 9)), max_size=2
    ).map(tuple),
    earlier_incarnations=st.lists(IDS, max_size=2).map(tuple),
    fenced=st.booleans(),
    in_controlled_shutdown=st.booleans(),
    offline_directories=st.lists(IDS, unique=True, max_size=2).map(lambda ids: tuple(sorted(ids))),
    last_uses=st.lists(st.builds(DirectoryUse, IDS, IDS, st.integers(0, 9)), max_size=2).map(
        lambda uses: tuple(sorted(uses))
    ),
)
UNREGISTERED = st.builds(
    UnregisteredBroker,
    broker_id=st.integers(10, 19),
    broker_epoch=st.integers(0, 99),
    incarnation_ids=st.lists(IDS, min_size=1, max_size=3).map(tuple),
)


OUTCOMES = st.dictionaries(
    IDS, st.tuples(TEXT, st.binary(max_size=4), st.binary(max_size=4)), max_size=4
).map(outcomes_of)


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    names = draw(st.lists(TEXT, unique=True, max_size=4))
    topics = [
        # A topic that is deleted and created again has another id. An id never gets another name.
        Topic(
            name,
            f"{name}{draw(st.booleans()):d}".encode().ljust(16),
            tuple(draw(st.lists(PARTITIONS, max_size=3))),
        )
        for name in names
    ]
    brokers = draw(st.lists(BROKERS, max_size=3))
    values = st.dictionaries(TEXT, TEXT, min_size=1, max_size=2).map(Map)
    resources = st.builds(ConfigResource, st.sampled_from([2, 4]), TEXT)
    return MetadataImage(
        offset=draw(st.integers(1, 99)),
        features=FeatureLevels({"metadata.version": METADATA_VERSION_LEVEL}),
        controllers=Controllers(draw(st.dictionaries(st.integers(0, 9), IDS, max_size=2))),
        brokers=Brokers(
            {broker.broker_id: broker for broker in brokers},
            Map({gone.broker_id: gone for gone in draw(st.lists(UNREGISTERED, max_size=2))}),
        ),
        topics=Topics(
            Map({topic.topic_id: topic for topic in topics}),
            Map({topic.name: topic.topic_id for topic in topics}),
            metric_names(topic.name for topic in topics),
        ),
        configs=Configs(draw(st.dictionaries(resources, values, max_size=3))),
        producer_ids=ProducerIds(draw(st.integers(0, 5000))),
        outcomes=draw(OUTCOMES),
        scram_credentials=ScramCredentials(
            Map(draw(st.dictionaries(USERS, CREDENTIALS, max_size=3))),
            draw(st.sampled_from([b"", b"secret"])),
        ),
        client_quotas=ClientQuotas(draw(st.dictionaries(ENTITIES, QUOTA_VALUES, max_size=3))),
        delegation_tokens=DelegationTokens(
            {each.token_id: each for each in draw(st.lists(TOKENS, max_size=3))}
        ),
        acls=acls_of(
            [
                (acl, number.to_bytes(16))
                for number, acl in enumerate(draw(st.lists(ACLS, unique=True, max_size=4)))
            ]
        ),
    )


@settings(max_examples=100)
@given(image=images())
def test_replaying_gives_the_image(image: MetadataImage) -> None:
    records = list(records_of(image))
    again = image_of(image.offset + 1, records)
    assert again == image
    assert list(records_of(again)) == records


@settings(max_examples=100)
@given(before=images(), after=images(), seed=st.integers(0, 99))
def test_a_delta_between_two_images_leads_to_the_later(
    before: MetadataImage, after: MetadataImage, seed: int
) -> None:
    rng = random.Random(seed)
    topics = {}
    for topic_id, topic in after.topics.items():  # as many share what was before
        known = before.topic_by_id(topic_id)
        if known is not None and len(known.partitions) <= len(topic.partitions):
            kept = rng.randint(0, len(known.partitions))
            mixed = known.partitions[:kept] + topic.partitions[kept:]
            topics[topic_id] = replace(topic, partitions=mixed)
        elif known is None:
            topics[topic_id] = topic
    after = replace(after, topics=Topics.of(topics.values()))
    delta = MetadataDelta.between(before, after)
    assert delta.apply() == after
    created = {topic.topic_id for topic in delta.created_topics}
    assert created == set(after.topics) - set(before.topics)
    assert {t.topic_id for t in delta.deleted_topics} == set(before.topics) - set(after.topics)
    changed = {(p.topic_id, p.partition): (p.before, p.after) for p in delta.changed_partitions}
    for topic, number, state in after.sorted_partitions():
        known_state = before.partition(topic.topic_id, number)
        if known_state == state:
            assert (topic.topic_id, number) not in changed
        else:
            assert changed[topic.topic_id, number] == (known_state, state)
    assert {b.broker_id for b in delta.changed_brokers} == {
        broker_id
        for broker_id in {*before.brokers, *after.brokers}
        if before.broker(broker_id) != after.broker(broker_id)
    }
    assert set(delta.changed_configs) == {
        resource
        for resource in {*before.configs, *after.configs}
        if before.config(resource) != after.config(resource)
    }


def test_partitions_are_never_taken_from_a_topic() -> None:
    one = PartitionState(replicas=(1,), isr=(1,), leader=1)
    many = replace(EMPTY, topics=Topics.of([Topic("t", b"t", (one, one))]))
    few = replace(EMPTY, topics=Topics.of([Topic("t", b"t", (one,))]))
    with pytest.raises(MetadataError):
        MetadataDelta.between(many, few)


def test_an_empty_cluster_has_an_empty_snapshot() -> None:
    assert list(records_of(EMPTY)) == []
    assert image_of(7, []) == replace(EMPTY, offset=6)
