"""The throttles from before a paced move, on disk beside its plan until they are set again.

The command that paces moves restores them at its end. If it is killed, the same command or
`verify` finds them here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.output import CommandError
from cli.reassignment_throttles import Changes

if TYPE_CHECKING:
    from stele.sync import Admin

_SUFFIX: Final = ".throttles"


class KeptThrottles:
    """The throttles that are kept for the plan in this file."""

    def __init__(self, plan_file: Path) -> None:
        self.path: Final = plan_file.with_name(plan_file.name + _SUFFIX)

    def load(self) -> Changes | None:
        """None: no command has been killed. Raises CommandError for a file that is no such."""
        from stele.admin.descriptions import ConfigResource

        try:
            return {
                ConfigResource(each["type"], each["name"]): each["values"]
                for each in json.loads(self.path.read_text())
            }
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CommandError(
                f"{self.path} should have the throttles from before an interrupted move, and "
                f"cannot be read ({error}): set the throttles by hand and remove the file"
            ) from error

    def save(self, before: Changes) -> None:
        """It is on disk at the return. Raises CommandError."""
        entries = [
            {"type": resource.type, "name": resource.name, "values": values}
            for resource, values in before.items()
        ]
        new = self.path.with_name(self.path.name + ".new")
        try:
            with new.open("w") as file:
                json.dump(entries, file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise CommandError(
                f"{self.path}: {error.strerror or error}. --throttle auto writes the present "
                "throttles there, to restore them after a crash"
            ) from error

    def restore(self, admin: Admin, before: Changes) -> None:
        """Set them again, and forget them."""
        admin.alter_configs(before)
        self.path.unlink(missing_ok=True)
