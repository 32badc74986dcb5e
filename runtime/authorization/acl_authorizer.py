"""The authorizer over the ACLs of the newest metadata of its node."""

from __future__ import annotations

import logging
from collections.abc import Callable

from metadata.acl import Operation, Resource, ResourceType
from metadata.acls import Acls
from runtime.authorization.caller import NODE_ITSELF, Caller
from runtime.log_format import AUDIT_LOGGER
from security.audit import AuditLimiter, Denial, count_line, line
from security.authorizer.decision import Policy, Verdict
from security.authorizer.machine import AccessMachine
from security.last_denials import LastDenial, LastDenials
from stele.world import Clock

audit_log = logging.getLogger(AUDIT_LOGGER)


class AclAuthorizer:
    """One for all roles of a node."""

    has_acls = True

    def __init__(
        self,
        policy: Policy,
        newest: Callable[[], Acls | None],
        clock: Clock,
        audit: AuditLimiter | None = None,
        denials: LastDenials | None = None,
    ) -> None:
        """``newest``: the ACLs of the newest committed metadata that the node has; None before it
        has those of its cluster. ``audit`` and ``denials``: shared with another authorizer of
        the node."""
        super_users = policy.super_users | {NODE_ITSELF}
        self._machine = AccessMachine(policy._replace(super_users=super_users))
        self._newest = newest
        self._clock = clock
        self._audit = audit or AuditLimiter()
        self._denials = denials or LastDenials()

    @property
    def is_loaded(self) -> bool:
        return self._newest() is not None

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        machine = self._machine
        machine.take(self._newest())
        return machine.decide(caller.principal, caller.address, operation, resource).is_allowed

    def allows_any(self, caller: Caller, operation: Operation, resource_type: ResourceType) -> bool:
        self._machine.take(self._newest())
        verdict = self._machine.decide_by_type(
            caller.principal, caller.address, operation, resource_type
        )
        return verdict.is_allowed

    def note_denial(
        self, caller: Caller, operation: Operation, resource: Resource, rule: str = ""
    ) -> None:
        principal = caller.principal
        now_s = self._clock.monotonic()
        client_id, address = caller.client_id or "", caller.address
        self._denials.note(principal, client_id, operation, resource, address, now_s)
        due = self._audit.take(principal, operation, resource, now_s)
        if due is None:
            return
        time_ms = int(self._clock.time_ms())
        if due.is_count:
            text = count_line(due.principal, time_ms=time_ms, left_out=due.left_out)
        else:
            rule = rule or self.verdict(principal, caller.address, operation, resource).rule()
            where = caller.address, caller.client_id, caller.listener
            denial = Denial(principal, operation, resource, *where, rule)
            text = line(denial, time_ms=time_ms, left_out=due.left_out)
        audit_log.info("%s", text)

    def last_denial(self, principal: str, client_id: str) -> tuple[LastDenial, float] | None:
        last = self._denials.of(principal, client_id)
        return None if last is None else (last, self._clock.monotonic() - last.at_s)

    def verdict(
        self, principal: str, host: str, operation: Operation, resource: Resource
    ) -> Verdict:
        self._machine.take(self._newest())
        return self._machine.decide(principal, host, operation, resource)

    def over(self, acls: Acls) -> AclAuthorizer:
        if acls is self._newest():
            return self  # which remembers its decisions
        policy, clock = self._machine.policy, self._clock
        return AclAuthorizer(policy, lambda: acls, clock, self._audit, self._denials)
