"""The registered brokers of an image."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from immutables import Map

from metadata.directories import LOST, is_reserved
from metadata.feature_levels import FeatureRange
from metadata.image_part import MapDelta, MapPart
from metadata.records import MetadataError
from stele.wire.v1 import metadata_pb2 as pb

PLAINTEXT: Final = "PLAINTEXT"
GRPC: Final = "GRPC"


UNREGISTERED_MAX: Final = 64
"""The image remembers the processes of so many unregistered brokers."""


class Plane(enum.Enum):
    """What is spoken at an endpoint."""

    KAFKA = "Kafka"
    GRPC = "gRPC"


STREAM_GRACE_S: Final = 0.3
"""A broker is fenced so long after its heartbeat stream has ended, if it opens no new one and
answers no probe. So a broker that ends its stream believes in its lease no longer than that, until
a heartbeat is acknowledged again."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A broker's address for the clients of ``listener``."""

    listener: str
    host: str
    port: int
    protocol: str
    """A Kafka listener's security protocol, as in Kafka's records; GRPC: it speaks gRPC."""

    @property
    def plane(self) -> Plane:
        return Plane.GRPC if self.protocol == GRPC else Plane.KAFKA


@dataclass(frozen=True, slots=True, order=True)
class DirectoryUse:
    """The last registration that had a log directory open."""

    directory_id: bytes
    incarnation_id: bytes  # empty: it was not on disk in the directory
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One registered broker."""

    broker_id: int
    # The offset of the registration's record, so each registration has a higher one.
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    log_directories: tuple[bytes, ...] = ()
    features: tuple[FeatureRange, ...] = ()  # by name; empty if the broker did not say
    inter_broker_listener: str = ""  # where other brokers reach it; "" if the broker did not say
    # Whether the incarnation id is on disk in each log directory, so that a disk that has gone back
    # to an earlier state is recognized at the next registration.
    directories_marked: bool = False
    # The processes before this one, the latest last, as far as they are known. A request of one of
    # them may still be on its way.
    earlier_incarnations: tuple[bytes, ...] = ()
    # A fenced broker leads nothing. It stays in an ISR only as its last member.
    fenced: bool = True
    in_controlled_shutdown: bool = False
    out_of_room: bool = False  # one of its disks is full
    # Ids of log directories, ascending: those that failed since the registration, and those of
    # earlier registrations that could not be opened at this one.
    offline_directories: tuple[bytes, ...] = ()
    # Of those offline directories that are not in `log_directories`; by id. Without them, a disk
    # that is restored from a snapshot could not be recognized once the broker had started without
    # it: the disk does not know the present registration in any case.
    last_uses: tuple[DirectoryUse, ...] = ()

    @property
    def active(self) -> bool:
        """Whether it may lead and stay in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def may_join_isr(self) -> bool:
        """Whether it may join an ISR. A broker without room would only fall behind again."""
        return self.active and not self.out_of_room

    def has_online(self, directory_id: bytes) -> bool:
        """Whether a replica in this directory can be used. A replica whose directory is not known
        counts as usable."""
        if is_reserved(directory_id):
            return directory_id != LOST
        return directory_id in self.log_directories and (
            directory_id not in self.offline_directories
        )

    def last_use(self, directory_id: bytes) -> DirectoryUse | None:
        """The last registration that had this directory open, if any is known."""
        if directory_id in self.log_directories:
            incarnation_id = self.incarnation_id if self.directories_marked else b""
            return DirectoryUse(directory_id, incarnation_id, self.broker_epoch)
        return next((each for each in self.last_uses if each.directory_id == directory_id), None)

    def endpoint(self, listener: str, plane: Plane = Plane.KAFKA) -> Endpoint | None:
        """The endpoint of that listener name and plane, if it has one."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener and endpoint.plane is plane:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class UnregisteredBroker:
    """A broker that an administrator has unregistered and that has not registered again."""

    broker_id: int
    broker_epoch: int  # of its last registration
    incarnation_ids: tuple[bytes, ...]  # its processes, as far as they are known; the latest last


class Brokers(MapPart[int, BrokerRegistration]):
    """Registrations, by broker id.

    ``unregistered`` has the brokers that are gone, by id. A registration of one of their processes
    may still be under way, and must not bring the broker back.
    """

    __slots__ = ("unregistered",)

    def __init__(
        self,
        entries: Mapping[int, BrokerRegistration] | None = None,
        unregistered: Map[int, UnregisteredBroker] | None = None,
    ) -> None:
        super().__init__(entries)
        self.unregistered: Map[int, UnregisteredBroker] = (
            Map() if unregistered is None else unregistered
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Brokers)
            and self.map == other.map
            and self.unregistered == other.unregistered
        )

    def __hash__(self) -> int:
        return hash((self.map, self.unregistered))

    def earlier_incarnations(self, broker_id: int) -> tuple[bytes, ...]:
        """The processes of this broker that must not register any more, the latest last."""
        registration = self.map.get(broker_id)
        if registration is not None:
            return registration.earlier_incarnations
        gone = self.unregistered.get(broker_id)
        return () if gone is None else gone.incarnation_ids

    def sorted(self) -> list[BrokerRegistration]:
        """By id."""
        return [self[broker_id] for broker_id in sorted(self)]

    def begin(self) -> BrokersDelta:
        return BrokersDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        for registration in self.sorted():
            yield from _records_of(registration)
        for broker_id in sorted(self.unregistered):
            yield from _records_of_unregistered(self.unregistered[broker_id])


@dataclass(frozen=True, slots=True)
class BrokerDelta:
    """One broker whose registration or state changed."""

    broker_id: int
    before: BrokerRegistration | None
    after: BrokerRegistration | None


class BrokersDelta(MapDelta[int, BrokerRegistration, Brokers]):
    """Brokers that registered, went, or changed their state. Each method raises MetadataError."""

    def __init__(self, before: Brokers) -> None:
        super().__init__(before)
        self._unregistered = before.unregistered

    def register(self, record: pb.RegisterBrokerRecord) -> None:
        registration = BrokerRegistration(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(
                Endpoint(e.listener, e.host, e.port, e.protocol) for e in record.endpoints
            ),
            rack=record.rack or None,
            log_directories=tuple(record.log_directories),
            features=tuple(
                FeatureRange(each.name, each.min_level, each.max_level) for each in record.features
            ),
            inter_broker_listener=record.inter_broker_listener,
            directories_marked=record.directories_marked,
            earlier_incarnations=tuple(record.earlier_incarnations),
        )
        self.set(record.broker_id, registration)
        if record.broker_id in self._unregistered:
            self._unregistered = self._unregistered.delete(record.broker_id)

    def unregister(self, record: pb.UnregisterBrokerRecord) -> None:
        gone = self._of(record.broker_id, record.broker_epoch)
        self.delete(record.broker_id)
        remembered = UnregisteredBroker(
            gone.broker_id,
            gone.broker_epoch,
            (*gone.earlier_incarnations, gone.incarnation_id),
        )
        self._unregistered = self._unregistered.set(record.broker_id, remembered)
        if len(self._unregistered) > UNREGISTERED_MAX:
            oldest = min(self._unregistered.values(), key=lambda each: each.broker_epoch)
            self._unregistered = self._unregistered.delete(oldest.broker_id)

    def change_state(self, record: pb.BrokerStateRecord) -> None:
        changed = replace(
            self._of(record.broker_id, record.broker_epoch),
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            out_of_room=record.out_of_room,
            offline_directories=tuple(sorted(record.offline_directories)),
            last_uses=tuple(
                sorted(
                    DirectoryUse(each.directory_id, each.incarnation_id, each.broker_epoch)
                    for each in record.last_uses
                )
            ),
        )
        self.set(record.broker_id, changed)

    def _of(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        registration = self.map.get(broker_id)
        if registration is None or registration.broker_epoch != broker_epoch:
            raise MetadataError(f"no broker {broker_id} of epoch {broker_epoch} is registered")
        return registration

    def skip_to(self, after: Brokers) -> None:
        super().skip_to(after)
        self._unregistered = after.unregistered

    def apply(self) -> Brokers:
        found = self._result
        if found.map is not self.map or found.unregistered is not self._unregistered:
            self._result = Brokers(self.map, self._unregistered)
        return self._result

    @property
    def changed(self) -> list[BrokerDelta]:
        """Brokers registered, unregistered, fenced, unfenced or shutting down, by id."""
        return [
            BrokerDelta(broker_id, self.before.get(broker_id), self.map.get(broker_id))
            for broker_id in sorted(self.touched)
        ]


def _records_of(registration: BrokerRegistration) -> Iterator[pb.MetadataRecord]:
    register = pb.RegisterBrokerRecord(
        broker_id=registration.broker_id,
        incarnation_id=registration.incarnation_id,
        broker_epoch=registration.broker_epoch,
        endpoints=[
            pb.Endpoint(
                listener=endpoint.listener,
                host=endpoint.host,
                port=endpoint.port,
                protocol=endpoint.protocol,
            )
            for endpoint in registration.endpoints
        ],
        rack=registration.rack or "",
        log_directories=registration.log_directories,
        features=[
            pb.FeatureRange(name=each.name, min_level=each.min_level, max_level=each.max_level)
            for each in registration.features
        ],
        inter_broker_listener=registration.inter_broker_listener,
        directories_marked=registration.directories_marked,
        earlier_incarnations=registration.earlier_incarnations,
    )
    yield pb.MetadataRecord(register_broker=register)
    yield state_record(registration)


def _records_of_unregistered(gone: UnregisteredBroker) -> Iterator[pb.MetadataRecord]:
    """The last registration and its end. A node that does not remember such brokers ends with the
    same registrations."""
    *earlier, latest = gone.incarnation_ids
    register = pb.RegisterBrokerRecord(
        broker_id=gone.broker_id,
        incarnation_id=latest,
        broker_epoch=gone.broker_epoch,
        earlier_incarnations=earlier,
    )
    unregister = pb.UnregisterBrokerRecord(broker_id=gone.broker_id, broker_epoch=gone.broker_epoch)
    yield pb.MetadataRecord(register_broker=register)
    yield pb.MetadataRecord(unregister_broker=unregister)


def state_record(registration: BrokerRegistration) -> pb.MetadataRecord:
    """The record that gives the broker the state of this registration."""
    return pb.MetadataRecord(
        broker_state=pb.BrokerStateRecord(
            broker_id=registration.broker_id,
            broker_epoch=registration.broker_epoch,
            fenced=registration.fenced,
            in_controlled_shutdown=registration.in_controlled_shutdown,
            out_of_room=registration.out_of_room,
            offline_directories=registration.offline_directories,
            last_uses=[
                pb.DirectoryUse(
                    directory_id=each.directory_id,
                    incarnation_id=each.incarnation_id,
                    broker_epoch=each.broker_epoch,
                )
                for each in registration.last_uses
            ],
        )
    )
