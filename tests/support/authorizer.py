"""An authorizer that a test tells what to deny."""

from __future__ import annotations

from runtime.authorization.authorizer import AllowAll, Operation, Resource, ResourceType
from runtime.authorization.caller import Caller

Need = tuple[Operation, Resource]


class FakeAuthorizer(AllowAll):
    """Allows everything except what a test denies, and remembers who asked."""

    def __init__(self) -> None:
        self.denied: set[Need] = set()
        self.only: frozenset[Need] | None = None
        """If it is set, nothing but this is allowed, as in a cluster with ACLs."""
        self.callers: list[Caller] = []
        self.denials: list[Need] = []
        """The denials that callers have seen."""
        self.rules: list[str] = []
        """Why, where no ACL was the reason."""

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        self.callers.append(caller)
        need = operation, resource
        return need not in self.denied if self.only is None else need in self.only

    def allows_any(self, caller: Caller, operation: Operation, resource_type: ResourceType) -> bool:
        if self.only is None:
            return self.allows(caller, operation, Resource(resource_type, "*"))
        return any(
            (operation, resource_type) == (allowed, resource.type)
            for allowed, resource in self.only
        )

    def note_denial(
        self, caller: Caller, operation: Operation, resource: Resource, rule: str = ""
    ) -> None:
        self.denials.append((operation, resource))
        if rule:
            self.rules.append(rule)


class WithAcls(FakeAuthorizer):
    """As of a cluster with ACLs: they can be administered."""

    has_acls = True
