"""An authorizer that a test tells what to deny."""

from __future__ import annotations

from runtime.authorization.authorizer import AllowAll, Operation, Resource, ResourceType
from runtime.authorization.caller import Caller


class FakeAuthorizer(AllowAll):
    """Allows everything except what a test denies, and remembers who asked."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, Resource]] = set()
        self.callers: list[Caller] = []

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        self.callers.append(caller)
        return (operation, resource) not in self.denied

    def allows_any(self, caller: Caller, operation: Operation, resource_type: ResourceType) -> bool:
        return self.allows(caller, operation, Resource(resource_type, "*"))
