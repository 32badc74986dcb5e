"""The part of the synchronous ``Admin`` for users, their access rules, quotas, tokens,
metrics and connections."""

from __future__ import annotations

from collections.abc import Sequence

from stele import aio
from stele.admin.acls import AccessVerdict, Acl, AclFilter
from stele.admin.client_connections import ClientConnection, ListenerCertificate
from stele.admin.client_quotas import (
    ClientQuotas,
    QuotaAlteration,
    QuotaComponent,
    QuotaUsage,
)
from stele.admin.delegation_tokens import DelegationToken
from stele.admin.users import ScramCredentialInfo, ScramDeletion, ScramUpsertion
from stele.sync.face import Face


class AccessAdmin(Face):
    """Users, rules of access and quotas."""

    _admin: aio.Admin

    # ------------------------------------------------------------------------- users

    def alter_user_scram_credentials(
        self,
        upsertions: Sequence[ScramUpsertion] = (),
        deletions: Sequence[ScramDeletion] = (),
    ) -> None:
        """Set and delete passwords. They leave this process salted and hashed only.

        Returns when every live broker knows them. Raises BulkError with the error of each refused
        user, for example RESOURCE_NOT_FOUND for a credential that does not exist,
        UNACCEPTABLE_CREDENTIAL for iterations out of bounds, DUPLICATE_RESOURCE for a credential
        that is named twice. If one change of a user is refused, this user's other changes are, too.

        >>> admin.alter_user_scram_credentials([ScramUpsertion("orders-app", password)])
        """
        self._run(lambda: self._admin.alter_user_scram_credentials(upsertions, deletions))

    def describe_user_scram_credentials(
        self, users: Sequence[str] = (), *, linearizable: bool = True
    ) -> dict[str, list[ScramCredentialInfo]]:
        """The credentials of each of the users, by default of all: mechanisms and iterations.
        Nobody can read salts and keys.

        Raises BulkError with RESOURCE_NOT_FOUND for a user without a credential.

        >>> admin.describe_user_scram_credentials()
        """
        return self._run(
            lambda: self._admin.describe_user_scram_credentials(users, linearizable=linearizable)
        )

    # ------------------------------------------------------------------------- ACLs

    def create_acls(self, acls: Sequence[Acl], *, request_id: bytes | None = None) -> None:
        """Add rules. A rule that is there already is no error.

        Returns when every live broker has applied them. Raises BulkError, for example with
        INVALID_REQUEST for a host that is neither an address nor ``*``. Raises ApiError
        SECURITY_DISABLED if the cluster has no authorizer, and ConfigError for an operation that
        the type of the resource does not have.

        >>> admin.create_acls([Acl("User:orders-app", "WRITE", "TOPIC", "orders")])
        """
        self._run(lambda: self._admin.create_acls(acls, request_id=request_id))

    def delete_acls(
        self, filters: Sequence[AclFilter], *, request_id: bytes | None = None
    ) -> list[Acl]:
        """Delete all rules that any of the filters matches, together. Returns them.

        Returns when every live broker has dropped them. Raises ApiError.

        >>> admin.delete_acls([AclFilter(principal="User:orders-app")])
        """
        return self._run(lambda: self._admin.delete_acls(filters, request_id=request_id))

    def describe_acls(
        self, wanted: AclFilter | None = None, *, linearizable: bool = True
    ) -> list[Acl]:
        """The rules that the filter matches, by default all. Raises ApiError.

        >>> admin.describe_acls(AclFilter(resource_type="TOPIC"))
        """
        return self._run(lambda: self._admin.describe_acls(wanted, linearizable=linearizable))

    def test_access(
        self,
        principal: str,
        operation: str,
        resource_type: str,
        resource_name: str,
        *,
        host: str = "",
    ) -> AccessVerdict:
        """Whether a principal may do something, and by which rule. Nothing is done.

        ``host``: the address that it would come from. Without it only rules for every host count.
        Raises ApiError.

        >>> admin.test_access("User:orders-app", "WRITE", "TOPIC", "orders")
        """
        return self._run(
            lambda: self._admin.test_access(
                principal, operation, resource_type, resource_name, host=host
            )
        )

    # ------------------------------------------------------------------------- quotas

    def alter_client_quotas(
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
        >>> admin.alter_client_quotas([quota])
        """
        self._run(
            lambda: self._admin.alter_client_quotas(
                alterations, validate_only=validate_only, request_id=request_id
            )
        )

    def describe_client_quotas(
        self,
        components: Sequence[QuotaComponent] = (),
        *,
        strict: bool = False,
        linearizable: bool = True,
    ) -> list[ClientQuotas]:
        """The quotas of every entity that all components match, by default all quotas.

        ``strict``: entities of more types than those of the components do not match.
        Raises ApiError.

        >>> admin.describe_client_quotas([QuotaComponent("user", "orders-app")])
        """
        return self._run(
            lambda: self._admin.describe_client_quotas(
                components, strict=strict, linearizable=linearizable
            )
        )

    # ------------------------------------------------------------------------- tokens

    def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int | None = None,
        request_id: bytes | None = None,
    ) -> DelegationToken:
        """Create a token. Every live broker lets its holder in when this returns.

        ``owner``: another user than the one who asks, which needs the permission CREATE_TOKENS on
        this user. ``max_lifetime_ms``: at most delegation.token.max.lifetime.ms, the default.
        Raises ApiError, for example DELEGATION_TOKEN_AUTH_DISABLED, or
        DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that has not logged in, or has logged in
        by a token.

        >>> token = admin.create_delegation_token(renewers=["User:scheduler"])
        """
        return self._run(
            lambda: self._admin.create_delegation_token(
                owner=owner,
                renewers=renewers,
                max_lifetime_ms=max_lifetime_ms,
                request_id=request_id,
            )
        )

    def renew_delegation_token(
        self,
        token_id: str,
        *,
        renew_period_ms: int | None = None,
        request_id: bytes | None = None,
    ) -> int:
        """Let a token expire later. Returns when it expires, in milliseconds since the Unix epoch.

        ``renew_period_ms``: from now on, at most delegation.token.expiry.time.ms, the default.
        Raises ApiError, for example DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, or
        DELEGATION_TOKEN_OWNER_MISMATCH for a caller that is neither owner nor renewer.

        >>> admin.renew_delegation_token(token.token_id)
        """
        return self._run(
            lambda: self._admin.renew_delegation_token(
                token_id, renew_period_ms=renew_period_ms, request_id=request_id
            )
        )

    def expire_delegation_token(
        self,
        token_id: str,
        *,
        expiry_period_ms: int | None = None,
        request_id: bytes | None = None,
    ) -> int:
        """Remove a token, or let it expire after some time from now on. Returns when it expires, in
        milliseconds since the Unix epoch.

        Brokers end the sessions of clients that are logged in by the token when it is gone. Raises
        ApiError as ``renew_delegation_token``.

        >>> admin.expire_delegation_token(token.token_id)
        """
        return self._run(
            lambda: self._admin.expire_delegation_token(
                token_id, expiry_period_ms=expiry_period_ms, request_id=request_id
            )
        )

    def describe_delegation_tokens(
        self, owners: Sequence[str] = (), *, linearizable: bool = True
    ) -> list[DelegationToken]:
        """The tokens that the caller may see: of these owners and renewers, by default all.

        Raises ApiError as ``create_delegation_token``.

        >>> admin.describe_delegation_tokens(["User:orders-app"])
        """
        return self._run(
            lambda: self._admin.describe_delegation_tokens(owners, linearizable=linearizable)
        )

    def explain_client_quotas(
        self, user: str = "", client_id: str = "", *, ip: str = ""
    ) -> dict[int, list[QuotaUsage]]:
        """The quotas that count for a client, and how much of them is used, by broker.

        ``user``: the principal without ``User:``. ``ip``: the quota of new connections of this
        address, in place of the quotas of a user. A key that is not there does not bound the
        client. Raises ApiError.

        >>> admin.explain_client_quotas("orders-app", "orders-1")
        >>> admin.explain_client_quotas(ip="10.0.0.7")
        """
        return self._run(lambda: self._admin.explain_client_quotas(user, client_id, ip=ip))

    # ------------------------------------------------------------------------- metrics

    def list_client_metrics(self, *, linearizable: bool = True) -> list[str]:
        """The names of all subscriptions to clients' metrics, sorted.

        ``alter_configs`` and ``describe_configs`` change and show them, as
        ``ConfigResource.client_metrics(name)``. Raises ApiError.

        >>> admin.list_client_metrics()
        """
        return self._run(lambda: self._admin.list_client_metrics(linearizable=linearizable))

    def describe_connections(
        self, client_id: str | None = None
    ) -> dict[int, list[ClientConnection]]:
        """The connections to each broker, in the order of their coming, by broker.

        ``client_id``: only those of this client. Other brokers are clients, too. What happens
        meanwhile may be missing. Raises ApiError.

        >>> admin.describe_connections("orders-1")
        """
        return self._run(lambda: self._admin.describe_connections(client_id))

    def describe_certificates(
        self, broker_ids: Sequence[int] | None = None
    ) -> dict[int, list[ListenerCertificate]]:
        """The certificates of each broker's encrypted listeners, by broker. A broker that has
        refused a new certificate says why.

        ``broker_ids``: only of these; None: of all in service. Raises ApiError.

        >>> admin.describe_certificates()
        """
        return self._run(lambda: self._admin.describe_certificates(broker_ids))
