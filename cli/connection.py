"""How commands reach the cluster: one time-out for all that a command asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cli.client_properties import command_security
from cli.options import tell_wait
from cli.output import CommandError, did_you_mean

if TYPE_CHECKING:
    from stele.sync import Admin


def connect(bootstrap: str, timeout_s: float) -> Admin:
    """An administrator's client whose calls end, all together, within ``timeout_s``."""
    from stele.sync import Admin

    timeout_ms = milliseconds(timeout_s)
    return Admin(
        bootstrap,
        default_api_timeout_ms=timeout_ms,
        total_timeout_ms=timeout_ms,
        on_wait=tell_wait,
        **command_security(),
    )


def milliseconds(timeout_s: float) -> int:
    """At least one."""
    return max(int(timeout_s * 1000), 1)


def check_topics(admin: Admin, names: list[str], advice: str = "") -> None:
    """A typo is told at once. Raises CommandError; ``advice`` ends its line."""
    known = [topic.name for topic in admin.list_topics()]
    for name in names:
        if name not in known:
            raise no_such_topic(name, known, advice)


def no_such_topic(name: str, known: Iterable[str], advice: str = "") -> CommandError:
    """The error for a topic that is not among the ``known`` ones. A cluster with access rules
    tells a user nothing of a topic that the user may not DESCRIBE."""
    from stele.cluster.missing_right import allowing, principal_of
    from stele.security.options import SecurityConfig

    near = did_you_mean(name, known)
    security = SecurityConfig(**command_security()).client_security()
    if security.sasl is None and security.tls.keystore.is_empty:
        return CommandError(f"there is no topic {name!r}.{near}{advice}")
    user = principal_of(security) or "the user of this command"
    allow = allowing(security, "DESCRIBE", "topic", name)
    return CommandError(
        f"there is no topic {name!r} that {user} may DESCRIBE.{near}{advice} "
        f"If there is one, an administrator can allow it: {allow}"
    )
