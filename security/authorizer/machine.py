"""The authorizer of a node: decisions over the newest rules, each made once per image.

A decision is remembered until the rules change. All decisions are dropped then, because a new rule
with a wildcard or a prefix may touch any of them.
"""

from __future__ import annotations

from typing import Final

from metadata.acl import Operation, Resource, ResourceType
from metadata.acls import Acls
from security.authorizer.decision import (
    NOT_LOADED,
    Policy,
    Verdict,
    canonical_host,
    decide,
    decide_by_type,
    of_super_user,
)

REMEMBERED_MAX: Final = 50_000
"""The most decisions that are remembered. Then all are forgotten, and made again when they are
needed."""

NAME_MAX: Final = 249
"""Decisions about resources with longer names are not remembered. No topic has one, and a client
may ask for groups with names of 32 KiB."""


class AccessMachine:
    """Give it the newest rules, and ask."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._acls: Acls | None = None  # None: not known yet
        self._decided: dict[tuple[str, str, Operation, Resource], Verdict] = {}
        self._by_type: dict[tuple[str, str, Operation, ResourceType], Verdict] = {}

    @property
    def acls(self) -> Acls | None:
        """The rules as of last; None before the first."""
        return self._acls

    def take(self, acls: Acls | None) -> None:
        """From now on decide over these rules. Until the first come, only super users may do
        anything."""
        if acls is not self._acls:
            self._acls = acls
            self._decided.clear()
            self._by_type.clear()

    def decide(
        self, principal: str, host: str, operation: Operation, resource: Resource
    ) -> Verdict:
        key = principal, host, operation, resource
        verdict = self._decided.get(key)
        if verdict is not None:
            return verdict
        acls = self._acls
        if acls is None:
            return of_super_user(self.policy, principal) or NOT_LOADED
        verdict = decide(acls, self.policy, principal, canonical_host(host), operation, resource)
        if len(resource.name) <= NAME_MAX:
            if len(self._decided) >= REMEMBERED_MAX:
                self._decided.clear()
            self._decided[key] = verdict
        return verdict

    def decide_by_type(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> Verdict:
        """As ``decision.decide_by_type``."""
        key = principal, host, operation, resource_type
        verdict = self._by_type.get(key)
        if verdict is not None:
            return verdict
        acls = self._acls
        if acls is None:
            return of_super_user(self.policy, principal) or NOT_LOADED
        host = canonical_host(host)
        verdict = decide_by_type(acls, self.policy, principal, host, operation, resource_type)
        if len(self._by_type) >= REMEMBERED_MAX:
            self._by_type.clear()
        self._by_type[key] = verdict
        return verdict
