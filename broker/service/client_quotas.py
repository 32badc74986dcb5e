"""Quotas of clients, described from this broker's metadata. The active controller changes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.service.context import BrokerContext
from metadata.client_quotas import CONTROLLER_MUTATION_RATE, QuotaEntity, Values
from metadata.image import MetadataImage
from runtime.administration.client_quotas import OF_CLIENTS, filter_of
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from runtime.quota.addresses import AddressQuota, AddressUsage, find_quota
from runtime.quota.manager import Usage
from runtime.quota.precedence import Client, Found, find
from security.authorizer.decision import canonical_host
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices


class Explained(NamedTuple):
    """A quota that counts for a client."""

    key: str
    found: Found
    usage: Usage | None
    """None: the controller keeps it, or no quota is in force here yet."""


def explain(
    context: BrokerContext, caller: Caller, image: MetadataImage, client: Client
) -> list[Explained]:
    """The quotas that count for a client on this broker, by key.

    Raises ApiError CLUSTER_AUTHORIZATION_FAILED.
    """
    check_described(context, caller)
    quotas = context.quotas
    explained = []
    for key in sorted(OF_CLIENTS):
        found = find(image.client_quotas, key, client)
        if found is None:
            continue
        usage = None
        if quotas.manager is not None and key != CONTROLLER_MUTATION_RATE:
            usage = quotas.manager.usage_of(key, found.bucket, quotas.now_s())
        explained.append(Explained(key, found, usage))
    return explained


def explain_address(
    context: BrokerContext, caller: Caller, image: MetadataImage, address: str
) -> tuple[AddressQuota, AddressUsage] | None:
    """The quota of new connections that counts for an address; None: it has none.

    Raises ApiError CLUSTER_AUTHORIZATION_FAILED.
    """
    check_described(context, caller)
    address = canonical_host(address)
    found = find_quota(image.client_quotas, address)
    if found is None:
        return None
    quotas = context.quotas
    return found, quotas.addresses.usage_of(address, quotas.now_s())


def check_described(context: BrokerContext, caller: Caller) -> None:
    """Raises ApiError CLUSTER_AUTHORIZATION_FAILED."""
    why = refusal(context.authorizer, caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
    if why is not None:
        raise why


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
    check_described(context, caller)
    wanted = filter_of(components, is_strict=is_strict)
    every = image.client_quotas.sorted()
    found = await in_slices(lambda each: each if wanted.matches(each[0]) else None, every)
    return [each for each in found if each is not None]
