"""The clients that are connected to a cluster, and the listeners by which they come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stele.admin.part import AdminPart
from stele.wire.v1 import admin_pb2 as pb


@dataclass(frozen=True, slots=True)
class ClientDenials:
    """What a broker has denied clients since it started, and the last of it."""

    times: int
    operation: str  # Kafka's name, as READ
    resource_type: str  # Kafka's name, as TOPIC
    resource_name: str
    ago_s: float
    rule: str  # what denies it now; empty: it is allowed now


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """A connection of Kafka's protocol to one broker."""

    principal: str
    client_id: str  # empty: it has sent no request yet, or gives none
    software_name: str  # empty: the client does not say
    software_version: str
    listener: str
    peer: str  # address and port of the client
    connected_s: float
    idle_s: float  # since it last sent, or took what was sent
    bytes_in: int
    bytes_out: int
    requests: int
    in_flight: int  # requests without an answer so far
    errors: int  # answers with an error of the whole request
    throttles: int  # how often it was not read, because the client was above a quota
    throttled_s: float
    is_throttled: bool  # now
    # The worst that clients of this principal and client id push to the broker. None: they push
    # none.
    lag: int | None = None  # records behind the end of a partition
    latency_ms: float | None = None  # the average time of a request
    # Of the clients of this principal and client id. None: the broker has denied them nothing.
    denials: ClientDenials | None = None


@dataclass(frozen=True, slots=True)
class ListenerCertificate:
    """The certificate of an encrypted listener of one broker."""

    listener: str
    valid_until_ms: int  # since the Unix epoch
    refusal: str | None  # why the listener goes on with its old certificate; None: it does not


class ConnectionAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for the connections of clients."""

    async def describe_connections(
        self, client_id: str | None = None
    ) -> dict[int, list[ClientConnection]]:
        """The connections to each broker, in the order of their coming, by broker.

        ``client_id``: only those of this client. Other brokers are clients, too. What happens
        meanwhile may be missing. Raises ApiError.

        >>> await admin.describe_connections("orders-1")
        """
        found: dict[int, list[ClientConnection]] = {}
        for broker_id in await self._requests.brokers():
            found[broker_id] = []
            request = pb.DescribeConnectionsRequest(client_id=client_id)
            while True:
                answer = await self._requests.ask(
                    "DescribeConnections",
                    request,
                    pb.DescribeConnectionsResponse.FromString,
                    broker_id=broker_id,
                )
                found[broker_id] += map(_connection, answer.connections)
                if not answer.next:
                    break
                request.after = answer.next
        return found

    async def describe_certificates(
        self, broker_ids: Sequence[int] | None = None
    ) -> dict[int, list[ListenerCertificate]]:
        """The certificates of each broker's encrypted listeners, by broker. A broker that has
        refused a new certificate says why.

        ``broker_ids``: only of these; None: of all in service. Raises ApiError.

        >>> await admin.describe_certificates()
        """
        return {
            broker_id: [
                ListenerCertificate(each.listener, each.valid_until_ms, each.refusal or None)
                for each in (
                    await self._requests.ask(
                        "DescribeCertificates",
                        pb.DescribeCertificatesRequest(),
                        pb.DescribeCertificatesResponse.FromString,
                        broker_id=broker_id,
                    )
                ).certificates
            ]
            for broker_id in (await self._requests.brokers() if broker_ids is None else broker_ids)
        }


def _connection(told: pb.DescribeConnectionsResponse.Connection) -> ClientConnection:
    return ClientConnection(
        told.principal,
        told.client_id,
        told.software_name,
        told.software_version,
        told.listener,
        told.peer,
        told.connected_ms / 1000,
        told.idle_ms / 1000,
        told.bytes_in,
        told.bytes_out,
        told.requests,
        told.in_flight,
        told.errors,
        told.throttles,
        told.throttled_ms / 1000,
        told.is_throttled,
        told.pushed_lag if told.HasField("pushed_lag") else None,
        told.pushed_latency_ms if told.HasField("pushed_latency_ms") else None,
        _denials(told.denials) if told.HasField("denials") else None,
    )


def _denials(told: pb.DescribeConnectionsResponse.Denials) -> ClientDenials:
    return ClientDenials(
        told.times,
        told.operation,
        told.resource_type,
        told.resource_name,
        told.ago_ms / 1000,
        told.rule,
    )
