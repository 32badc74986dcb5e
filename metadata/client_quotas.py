"""The quotas of clients in an image (KIP-546).

A quota says what a client may use of each broker, by the client's user, client id or address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from immutables import Map

from metadata.image_part import MapDelta, MapPart
from metadata.records import MetadataError
from stele.wire.v1 import metadata_pb2 as pb

CLIENT_QUOTA_RECORDS: Final = 7
"""The level of metadata.version from which on there are quotas of clients."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
PRODUCER_IDS_RATE: Final = "producer_ids_rate"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"


class EntityPart(NamedTuple):
    """A user, a client id or an address; without a name, all that have no quota of their own."""

    type: str
    name: str | None


QuotaEntity = tuple[EntityPart, ...]
"""What a quota is of: parts of different types, sorted by type."""

Values = Map[str, float]
"""The quotas of one entity, by key. No entity is kept without any."""

_NO_VALUES: Values = Map()


class ClientQuotas(MapPart[QuotaEntity, Values]):
    """Immutable. Its own order differs from process to process: use ``sorted``."""

    __slots__ = ()

    def sorted(self) -> list[tuple[QuotaEntity, Values]]:
        """All entities with their quotas. A default comes before the names of its type."""
        return sorted(self.map.items(), key=lambda item: order(item[0]))

    def begin(self) -> ClientQuotasDelta:
        return ClientQuotasDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        for entity, values in self.sorted():
            for key in sorted(values):
                yield quota_record(entity, key, values[key])


class ClientQuotasDelta(MapDelta[QuotaEntity, Values, ClientQuotas]):
    """Quotas that were set and removed."""

    def replay(self, record: pb.ClientQuotaRecord) -> None:
        """Raises MetadataError for a quota to be removed that is not there, and for one that no
        rate could keep."""
        entity = tuple(
            EntityPart(each.type, each.name if each.HasField("name") else None)
            for each in record.entity
        )
        values = self.map.get(entity, _NO_VALUES)
        if record.remove:
            if record.key not in values:
                raise MetadataError(f"{text_of(entity)} has no {record.key} to be removed")
            values = values.delete(record.key)
        elif record.value > 0:
            values = values.set(record.key, record.value)
        else:
            raise MetadataError(f"{record.key} of {text_of(entity)} is {record.value}")
        if values:
            self.set(entity, values)
        else:
            self.delete(entity)


def order(entity: QuotaEntity) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The sort key of an entity."""
    return tuple((part.type, () if part.name is None else (part.name,)) for part in entity)


def text_of(entity: QuotaEntity) -> str:
    """An entity for people, for example ``user 'ann', default client-id``."""
    return ", ".join(
        f"default {part.type}" if part.name is None else f"{part.type} {part.name!r}"
        for part in reversed(entity)
    )


def quota_record(entity: QuotaEntity, key: str, value: float) -> pb.MetadataRecord:
    """The record that sets a quota."""
    record = pb.ClientQuotaRecord(entity=_parts(entity), key=key, value=value)
    return pb.MetadataRecord(client_quota=record)


def removal_record(entity: QuotaEntity, key: str) -> pb.MetadataRecord:
    """The record that removes a quota."""
    record = pb.ClientQuotaRecord(entity=_parts(entity), key=key, remove=True)
    return pb.MetadataRecord(client_quota=record)


def _parts(entity: QuotaEntity) -> list[pb.ClientQuotaRecord.Entity]:
    return [pb.ClientQuotaRecord.Entity(type=each.type, name=each.name) for each in entity]
