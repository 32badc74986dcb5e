"""DescribeCertificates: by which certificates this broker serves, and which it has refused."""

from __future__ import annotations

from broker.service.context import BrokerContext
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from stele.wire.v1 import admin_pb2 as pb


class ListenerCertificates:
    """The method of ``stele.v1.Admin``."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def describe(
        self, caller: Caller, request: pb.DescribeCertificatesRequest
    ) -> pb.DescribeCertificatesResponse:
        why = refusal(self._context.authorizer, caller, Operation.DESCRIBE, CLUSTER)
        if why is not None:
            return pb.DescribeCertificatesResponse(error=why.code, message=why.message)
        return pb.DescribeCertificatesResponse(
            certificates=[
                pb.DescribeCertificatesResponse.Certificate(
                    listener=name, valid_until_ms=tls.valid_until_ms, refusal=tls.refusal or ""
                )
                for name, tls in sorted(self._context.encrypted_listeners.items())
            ]
        )
