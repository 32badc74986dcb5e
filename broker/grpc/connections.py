"""DescribeConnections: the open connections of this broker, and their clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.service import client_connections
from broker.service.context import BrokerContext
from broker.telemetry.series import Figures
from runtime.authorization.caller import Caller
from runtime.kafka.connection import KafkaServerProtocol
from runtime.quota.precedence import client_of
from stele.errors import ApiError
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices

_NOTHING: Final = Figures()


class ClientConnections:
    """The method of ``stele.v1.Admin``."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def describe(
        self, caller: Caller, request: pb.DescribeConnectionsRequest
    ) -> pb.DescribeConnectionsResponse:
        wanted = request.client_id if request.HasField("client_id") else None
        try:
            page = await client_connections.describe(
                self._context, caller, after=request.after, client_id=wanted
            )
        except ApiError as error:
            return pb.DescribeConnectionsResponse(error=error.code, message=error.message)
        now_s = client_connections.now_s()
        telemetry = self._context.telemetry
        figures = {} if telemetry is None else telemetry.figures()
        return pb.DescribeConnectionsResponse(
            connections=await in_slices(
                lambda each: self._message(each, now_s, figures), page.connections
            ),
            next=page.next,
        )

    def _message(
        self,
        connection: KafkaServerProtocol,
        now_s: float,
        figures: Mapping[tuple[str, str], Figures],
    ) -> pb.DescribeConnectionsResponse.Connection:
        client = client_of(connection.principal, connection.client_id)
        pushed = figures.get(client, _NOTHING)
        return pb.DescribeConnectionsResponse.Connection(
            principal=connection.principal,
            client_id=connection.client_id,
            software_name=connection.software_name,
            software_version=connection.software_version,
            listener=connection.listener_name,
            peer=connection.peer,
            connected_ms=_ms(now_s - connection.opened_s),
            idle_ms=_ms(now_s - connection.last_active_s),
            bytes_in=connection.bytes_in,
            bytes_out=connection.bytes_out,
            requests=connection.requests,
            in_flight=connection.in_flight,
            errors=connection.errors,
            throttles=connection.muted.count,
            throttled_ms=_ms(connection.muted.total_s),
            is_throttled=connection.muted.is_on,
            pushed_lag=None if pushed.lag is None else round(pushed.lag),
            pushed_latency_ms=pushed.latency_ms,
            denials=self._denials(connection),
        )

    def _denials(
        self, connection: KafkaServerProtocol
    ) -> pb.DescribeConnectionsResponse.Denials | None:
        authorizer = self._context.authorizer
        told = authorizer.last_denial(connection.principal, connection.client_id)
        if told is None:
            return None
        last, ago_s = told
        verdict = authorizer.verdict(
            connection.principal, last.address, last.operation, last.resource
        )
        return pb.DescribeConnectionsResponse.Denials(
            times=last.times,
            operation=last.operation.name,
            resource_type=last.resource.type.name,
            resource_name=last.resource.name,
            ago_ms=_ms(ago_s),
            rule="" if verdict.is_allowed else verdict.rule(),
        )


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
