"""An authorizer that a test tells what to deny."""

from __future__ import annotations

from runtime.authorization.authorizer import Operation, Resource
from runtime.authorization.caller import Caller


class FakeAuthorizer:
    """Allows everything except what a test denies, and remembers who asked."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, Resource]] = set()
        self.callers: list[Caller] = []

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        self.callers.append(caller)
        return (operation, resource) not in self.denied
