"""What an audit log says: each denial and refusal once, how often it came, and what mends it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from security.audit import Event
from security.authorizer.decision import IMPLIED_BY, Reason

_HOSTS_MAX: Final = 5
_ANONYMOUS: Final = "User:ANONYMOUS"
_OF_SPARK: Final = "spark/"
"""How the transactional ids of Spark's exactly-once sink begin (docs/spark.md)."""
_WIDER: Final = {
    operation.name: sorted(each.name for each in wider) for operation, wider in IMPLIED_BY.items()
}


class DenialKey(NamedTuple):
    """Denials with the same of all this are one."""

    principal: str
    operation: str
    resource_type: str
    resource_name: str
    listener: str
    rule: str

    @property
    def resource(self) -> str:
        """As ``stele acls`` takes it."""
        kind = self.resource_type.lower().replace("_", "-")
        return kind if kind == "cluster" else f"{kind}:{self.resource_name}"

    @property
    def allowed(self) -> str:
        """What the rule that mends it is about, as arguments. A transactional id of Spark's sink is
        of one attempt of a task, so a rule for it alone would never help."""
        if self.resource_type == "TRANSACTIONAL_ID" and self.resource_name.startswith(_OF_SPARK):
            return f"transactional-id:{_OF_SPARK} --prefixed"
        return shlex.quote(self.resource)

    @property
    def remedy(self) -> str:
        principal = shlex.quote(self.principal)
        if self.rule == Reason.NOT_LOADED.value:
            return "nothing: the node did not know the ACLs of its cluster yet"
        if self.rule != Reason.DEFAULT.value:
            return f"this rule denies it: stele acls list --principal {principal}"
        if self.principal == _ANONYMOUS:
            return (
                "the client did not say who it is: let it connect to a listener with a login or "
                "client certificates"
            )
        allow = f"stele acls add {principal} {self.operation} {self.allowed}"
        if self.operation == "CLUSTER_ACTION":
            return f"if it is a node of the cluster, add it to super.users, or: {allow}"
        return allow


def remedies(denials: Collection[DenialKey]) -> list[str]:
    """What mends the denials, each once and in their order. READ allows DESCRIBE, too: so DESCRIBE
    is left out beside it."""
    allowed = {
        (each.principal, each.allowed, each.operation)
        for each in denials
        if each.rule == Reason.DEFAULT.value
    }
    return list(
        dict.fromkeys(
            each.remedy
            for each in denials
            if each.rule != Reason.DEFAULT.value
            or not any(
                (each.principal, each.allowed, wider) in allowed
                for wider in _WIDER.get(each.operation, ())
            )
        )
    )


class RefusalKey(NamedTuple):
    """Refused connections of one host for one reason, or what happened to a certificate."""

    event: Event
    listener: str
    host: str
    reason: str


@dataclass(slots=True)
class Seen:
    """How often, and when."""

    times: int = 0
    first: str = ""  # as the log writes times, in UTC
    last: str = ""
    hosts: dict[str, None] = field(default_factory=dict)  # some of them
    clients: dict[str, None] = field(default_factory=dict)

    def add(self, line: Mapping[str, Any]) -> None:
        time = str(line.get("time", ""))
        self.times += 1 + int(line.get("left_out") or 0)
        self.first = min(self.first or time, time)
        self.last = max(self.last, time)
        for known, name in ((self.hosts, "host"), (self.clients, "client_id")):
            if line.get(name) and len(known) < _HOSTS_MAX:
                known[str(line[name])] = None


class AuditReport:
    """Takes the lines of audit logs, of one node or of several."""

    def __init__(self) -> None:
        self.denials: dict[DenialKey, Seen] = {}
        self.connections: dict[RefusalKey, Seen] = {}
        self.left_out: dict[str | None, int] = {}
        """Denials beyond a budget, by principal; None: the node's budget."""
        self._certificates: dict[str, tuple[str, RefusalKey]] = {}  # the last event by listener

    @property
    def refused_certificates(self) -> list[tuple[str, RefusalKey]]:
        """Listeners that still go on with their old certificate, each with the time since when."""
        return [
            (time, key)
            for time, key in self._certificates.values()
            if key.event is Event.CERTIFICATE_REFUSED
        ]

    def take(self, line: str) -> bool:
        """Whether it is a line of the audit. It may stand behind a prefix, as in a node's log."""
        told = _object_in(line)
        if told is None:
            return False
        event = told.get("event")
        if event == "denied":
            self._take_denial(told)
        elif event == "denials_left_out":
            principal = told.get("principal")
            left_out = int(told.get("left_out") or 0)
            self.left_out[principal] = self.left_out.get(principal, 0) + left_out
        elif event in _EVENTS:
            self._take_refusal(_EVENTS[event], told)
        else:
            return False
        return True

    def _take_denial(self, told: Mapping[str, Any]) -> None:
        key = DenialKey(*(str(told.get(name, "")) for name in DenialKey._fields))
        self.denials.setdefault(key, Seen()).add(told)

    def _take_refusal(self, event: Event, told: Mapping[str, Any]) -> None:
        listener, host, reason = (
            str(told.get(each, "")) for each in ("listener", "host", "reason")
        )
        key = RefusalKey(event, listener, host, reason)
        if event in (Event.CERTIFICATE_REFUSED, Event.CERTIFICATE_EXCHANGED):
            time = str(told.get("time", ""))
            if time >= self._certificates.get(listener, ("",))[0]:
                self._certificates[listener] = time, key
        else:
            self.connections.setdefault(key, Seen()).add(told)


_EVENTS: Final = {each.value: each for each in Event}


def _object_in(line: str) -> dict[str, Any] | None:
    """The audit's object: the line itself, or behind what the node's log writes before it, or as
    the message of a log in JSON."""
    _, brace, rest = line.partition("{")
    try:
        told = json.loads(brace + rest)
        if "message" in told:
            told = json.loads(told["message"])
    except (ValueError, TypeError):
        return None
    return told if isinstance(told, dict) else None
