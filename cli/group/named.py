"""Groups that a command names, of whichever kind: which they are, and their deletion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.output import CommandError, UsageError, did_you_mean, note, print_json

if TYPE_CHECKING:
    from stele.sync import Admin


def named_groups(names: list[str], known: Sequence[str], kind: str, everything: bool) -> list[str]:
    """The named groups, or all known ones with ``--all-groups``. ``kind``: group or share group.
    Raises CommandError."""
    if bool(names) == everything:
        raise UsageError(f"which {kind}s? Name some, or give --all-groups")
    for name in names:
        if name not in known:
            raise CommandError(f"there is no {kind} {name!r}.{did_you_mean(name, known)}")
    return names or list(known)


def delete_groups(admin: Admin, groups: list[str], kind: str, as_json: bool) -> None:
    """Delete groups, and say which. Raises BulkError, after it has named the deleted ones."""
    from stele.errors import BulkError

    try:
        admin.delete_groups(groups)
    except BulkError as error:
        for name in error.succeeded:
            note(f"stele: deleted {kind} {name}")
        raise
    if as_json:
        print_json([{"group": name, "deleted": True} for name in groups])
        return
    for name in groups:
        print(f"deleted {kind} {name}")
