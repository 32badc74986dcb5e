"""Other key and trust stores of a broker, which it tries before they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from broker.service.config_changes import alter
from metadata.records import METADATA_VERSION, METADATA_VERSION_LEVEL
from runtime.authorization.authorizer import CLUSTER, Operation
from runtime.authorization.caller import ANONYMOUS, Caller, Plane
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2, metadata_pb2
from tests.support.authorizer import FakeAuthorizer
from tests.support.broker_apis import ME, Edges
from tests.support.worlds import virtual

KEYSTORE = "listener.name.external.ssl.keystore.location"
CALLER = Caller(ANONYMOUS, "admin", "EXTERNAL", Plane.KAFKA, "10.0.0.9")


class Broker:
    """Its stores cannot be loaded. Notes what it is asked to try."""

    def __init__(self, *, may_try: bool = True) -> None:
        self.authorizer = FakeAuthorizer()
        self.edges = Edges(self.authorizer)
        level = metadata_pb2.FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_LEVEL)
        self.edges.commit(metadata_pb2.MetadataRecord(feature_level=level))
        self.tried: list[dict[str, str | None]] = []
        self.why: str | None = "there is no such file"
        self.context = self.edges.context
        if may_try:
            self.context = replace(self.context, why_not_certificates=self._try)

    async def _try(self, changes: Mapping[str, str | None]) -> str | None:
        self.tried.append(dict(changes))
        return self.why

    async def altered(self, name: str, **changes: str) -> ErrorCode:
        wish = admin_pb2.AlterConfigsRequest.Resource(
            resource=admin_pb2.ConfigResource(
                type=metadata_pb2.ConfigResourceType.BROKER, name=name
            )
        )
        for key, value in changes.items():
            wish.changes.add(name=key, value=value)
        (outcome,) = await alter(self.context, CALLER, [wish], [None], validate_only=False)
        return outcome.error


@virtual
async def test_stores_that_cannot_be_loaded_are_refused() -> None:
    broker = Broker()
    error = await broker.altered(str(ME), **{KEYSTORE: "/new.p12", "log.cleaner.threads": "1"})
    assert error is ErrorCode.INVALID_REQUEST
    assert broker.tried == [{KEYSTORE: "/new.p12"}]


@virtual
async def test_stores_that_can_be_loaded_are_for_the_controller_to_decide() -> None:
    broker, plain = Broker(), Broker(may_try=False)
    broker.why = None
    error = await broker.altered(str(ME), **{KEYSTORE: "/new.p12"})
    assert error is await plain.altered(str(ME), **{KEYSTORE: "/new.p12"})
    assert len(broker.tried) == 1


@pytest.mark.parametrize(
    ("name", "key"), [("2", KEYSTORE), ("", KEYSTORE), (str(ME), "log.cleaner.threads")]
)
@virtual
async def test_stores_of_others_and_other_settings_are_not_tried(name: str, key: str) -> None:
    broker = Broker()
    await broker.altered(name, **{key: "1"})
    assert broker.tried == []


@virtual
async def test_who_may_not_change_them_learns_nothing_of_the_brokers_files() -> None:
    broker = Broker()
    broker.authorizer.denied.add((Operation.ALTER_CONFIGS, CLUSTER))
    error = await broker.altered(str(ME), **{KEYSTORE: "/etc/shadow"})
    assert error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert broker.tried == []
