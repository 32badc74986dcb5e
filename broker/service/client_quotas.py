"""Quotas of clients, described from this broker's metadata. The active controller changes them."""

from __future__ import annotations

from collections.abc import Iterable

from broker.service.context import BrokerContext
from metadata.client_quotas import QuotaEntity, Values
from metadata.image import MetadataImage
from runtime.administration.client_quotas import filter_of
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices


async def describe(
    context: BrokerContext,
    caller: Caller,
    image: MetadataImage,
    components: Iterable[pb.DescribeClientQuotasRequest.Component],
    *,
    is_strict: bool,
) -> list[tuple[QuotaEntity, Values]]:
    """The entities that all components match with their quotas, sorted.

    Raises ApiError CLUSTER_AUTHORIZATION_FAILED, and as ``filter_of``.
    """
    why = refusal(context.authorizer, caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
    if why is not None:
        raise why
    wanted = filter_of(components, is_strict=is_strict)
    every = image.client_quotas.sorted()
    found = await in_slices(lambda each: each if wanted.matches(each[0]) else None, every)
    return [each for each in found if each is not None]
