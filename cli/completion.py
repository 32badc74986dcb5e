"""Names of topics and groups for the shell's completion, asked of the cluster.

A shell waits at each press of a key. So there is little time, and no answer is no error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import typer

from cli.client_properties import apply_profile, command_security
from cli.output import CommandError
from stele.errors import SteleError

if TYPE_CHECKING:
    from stele.sync import Admin

TIMEOUT_MS: Final = 1000


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    return _begin_with(incomplete, _asked(ctx, _topics))


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    return _begin_with(incomplete, _asked(ctx, _groups))


def _begin_with(incomplete: str, names: list[str]) -> list[str]:
    """Internal topics only for a person that asks for them."""
    found = (name for name in names if name.startswith(incomplete))
    return sorted(name for name in found if incomplete.startswith("_") or name[:2] != "__")


def _topics(admin: Admin) -> list[str]:
    return [each.name for each in admin.list_topics(linearizable=False)]


def _groups(admin: Admin) -> list[str]:
    return [each.group_id for each in admin.list_groups()]


def _asked(context: typer.Context, question: Callable[[Admin], list[str]]) -> list[str]:
    from stele.sync import Admin

    option = next(each for each in context.command.params if "--bootstrap-server" in each.opts)
    try:
        apply_profile(context, option)
        with Admin(
            context.params[str(option.name)],
            default_api_timeout_ms=TIMEOUT_MS,
            total_timeout_ms=TIMEOUT_MS,
            on_wait=lambda reason: None,
            **command_security(),
        ) as admin:
            return question(admin)
    except (CommandError, SteleError, OSError):
        return []
