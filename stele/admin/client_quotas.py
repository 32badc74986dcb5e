"""Administration of quotas: what a client may use of each broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stele.admin.part import AdminPart
from stele.cluster.messages import error_code
from stele.errors import ApiError, BulkError, ConfigError
from stele.wire.v1 import admin_pb2 as pb

MATCH_TYPES: Final[Mapping[str, int]] = MappingProxyType({"EXACT": 0, "DEFAULT": 1, "SPECIFIED": 2})


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """Quotas of one entity that are to be set, or removed by None.

    ``entity``: its user, its client-id, both, or an ip. The name None is the default: everybody
    without a quota of their own.

    >>> QuotaAlteration({"user": "orders-app"}, {"producer_byte_rate": 10_000_000})
    >>> QuotaAlteration({"user": "orders-app", "client-id": None}, {"producer_byte_rate": None})
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float | None]

    def __str__(self) -> str:
        return entity_text(self.entity)


@dataclass(frozen=True, slots=True)
class QuotaComponent:
    """A condition on the entities that are described.

    ``match``: EXACT for this name, DEFAULT for the default of the type, SPECIFIED for any of them.

    >>> QuotaComponent("user", "orders-app")
    >>> QuotaComponent("client-id", match="SPECIFIED")
    """

    type: str
    name: str | None = None
    match: str = "EXACT"


@dataclass(frozen=True, slots=True)
class ClientQuotas:
    """The quotas of one entity, as in ``QuotaAlteration``."""

    entity: dict[str, str | None]
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """A quota that counts for a client on one broker."""

    key: str
    entity: dict[str, str | None]  # whose quota it is, as in ``QuotaAlteration``
    value: float
    usage: float  # now; always 0 for what the controller keeps
    throttles: int  # how often its clients were told to wait
    throttled_s: float
    shared_by: tuple[str, ...]  # what the clients that use it up together have in common


class QuotaAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for quotas."""

    async def alter_client_quotas(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> None:
        """Set and remove quotas. A quota bounds what each broker gives, and not their sum.

        Returns when every live broker has applied them. Raises BulkError with the error of each
        refused entity, for example INVALID_REQUEST for a rate of 0 or an unknown key. The quotas of
        a refused entity stay as they are.

        >>> quota = QuotaAlteration({"user": "orders-app"}, {"producer_byte_rate": 10_000_000})
        >>> await admin.alter_client_quotas([quota])
        """
        request = pb.AlterClientQuotasRequest(validate_only=validate_only)
        for each in alterations:
            entry = request.entries.add(
                entity=[pb.QuotaEntity(type=kind, name=name) for kind, name in each.entity.items()]
            )
            for key, value in each.values.items():
                entry.ops.add(key=key, value=value or 0.0, remove=value is None)
        answer = await self._requests.change(
            "AlterClientQuotas", request, pb.AlterClientQuotasResponse.FromString, request_id
        )
        results = list(zip(map(str, alterations), answer.entries, strict=True))
        failed = {
            text: ApiError(error_code(told.error), told.message)
            for text, told in results
            if told.error
        }
        if failed:
            raise BulkError(failed, [text for text, told in results if not told.error])

    async def describe_client_quotas(
        self,
        components: Sequence[QuotaComponent] = (),
        *,
        strict: bool = False,
        linearizable: bool = True,
    ) -> list[ClientQuotas]:
        """The quotas of every entity that all components match, by default all quotas.

        ``strict``: entities of more types than those of the components do not match.
        Raises ApiError.

        >>> await admin.describe_client_quotas([QuotaComponent("user", "orders-app")])
        """
        answer = await self._requests.ask(
            "DescribeClientQuotas",
            pb.DescribeClientQuotasRequest(
                components=map(_component, components),
                strict=strict,
                min_metadata_offset=self._requests.changed_at,
                linearizable=linearizable,
            ),
            pb.DescribeClientQuotasResponse.FromString,
        )
        return [
            ClientQuotas(
                {
                    part.type: part.name if part.HasField("name") else None
                    for part in reversed(entry.entity)
                },
                {quota.key: quota.value for quota in entry.quotas},
            )
            for entry in answer.entries
        ]

    async def explain_client_quotas(
        self, user: str = "", client_id: str = "", *, ip: str = ""
    ) -> dict[int, list[QuotaUsage]]:
        """The quotas that count for a client, and how much of them is used, by broker.

        ``user``: the principal without ``User:``. ``ip``: the quota of new connections of this
        address, in place of the quotas of a user. A key that is not there does not bound the
        client. Raises ApiError.

        >>> await admin.explain_client_quotas("orders-app", "orders-1")
        >>> await admin.explain_client_quotas(ip="10.0.0.7")
        """
        request = pb.ExplainClientQuotasRequest(
            user=user, client_id=client_id, ip=ip, min_metadata_offset=self._requests.changed_at
        )
        found = {}
        for broker_id in await self._requests.brokers():
            answer = await self._requests.ask(
                "ExplainClientQuotas",
                request,
                pb.ExplainClientQuotasResponse.FromString,
                broker_id=broker_id,
            )
            found[broker_id] = [_usage(each) for each in answer.quotas]
        return found


def _usage(quota: pb.ExplainClientQuotasResponse.Quota) -> QuotaUsage:
    common = (
        ("user", quota.is_shared_by_user),
        ("client-id", quota.is_shared_by_client_id),
        ("ip", quota.is_shared_by_ip),
    )
    return QuotaUsage(
        quota.key,
        {
            part.type: part.name if part.HasField("name") else None
            for part in reversed(quota.entity)
        },
        quota.value,
        quota.usage,
        quota.throttles,
        quota.throttled_seconds,
        tuple(kind for kind, is_common in common if is_common),
    )


def entity_text(entity: Mapping[str, str | None]) -> str:
    """An entity for people, for example ``user orders-app, default client-id``."""
    return ", ".join(
        f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items()
    )


def _component(component: QuotaComponent) -> pb.DescribeClientQuotasRequest.Component:
    """Raises ConfigError."""
    match_type = MATCH_TYPES.get(component.match.upper())
    if match_type is None:
        raise ConfigError(
            f"there is no match type {component.match!r}: there are {', '.join(MATCH_TYPES)}"
        )
    return pb.DescribeClientQuotasRequest.Component(
        type=component.type, match_type=match_type, match=component.name
    )
