"""The dynamic configurations in an image: of topics, of groups, of brokers, of the cluster, and the
subscriptions to clients' metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from immutables import Map

from metadata.image_part import MapDelta, MapPart
from stele.wire.v1 import metadata_pb2 as pb


class ConfigResource(NamedTuple):
    """The owner of a dynamic configuration. A broker named "" is the cluster's default."""

    type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(pb.ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int) -> ConfigResource:
        return cls(pb.ConfigResourceType.BROKER, str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        return cls(pb.ConfigResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        return cls(pb.ConfigResourceType.CLIENT_METRICS, name)


CLUSTER = ConfigResource(pb.ConfigResourceType.BROKER, "")

_NOTHING: Map[str, str] = Map()


class Configs(MapPart[ConfigResource, Map[str, str]]):
    """Values as text, by resource and key. Only what is set: no empty inner map."""

    __slots__ = ()

    def of(self, resource: ConfigResource) -> Mapping[str, str]:
        """The configs of exactly this resource; order them before use."""
        return self.map.get(resource, _NOTHING)

    def sorted(self) -> list[tuple[ConfigResource, list[tuple[str, str]]]]:
        """Everything, by resource and key."""
        return [(resource, sorted(self[resource].items())) for resource in sorted(self)]

    def begin(self) -> ConfigsDelta:
        return ConfigsDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        for resource, entries in self.sorted():
            for name, value in entries:
                config = pb.ConfigRecord(
                    resource_type=pb.ConfigResourceType.Name(resource.type),
                    resource_name=resource.name,
                    name=name,
                    value=value,
                )
                yield pb.MetadataRecord(config=config)


class ConfigsDelta(MapDelta[ConfigResource, Map[str, str], Configs]):
    """Settings made and removed."""

    def replay(self, record: pb.ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        values: Map[str, str] = self.map.get(resource, _NOTHING)
        if record.HasField("value"):
            values = values.set(record.name, record.value)
        elif record.name in values:
            values = values.delete(record.name)
        if values:
            self.set(resource, values)
        else:
            self.forget(resource)
        self.touched.add(resource)

    def forget(self, resource: ConfigResource) -> None:
        """Nothing is set on it any more."""
        if resource in self.map:
            self.delete(resource)
