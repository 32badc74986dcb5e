"""Profiles: names for clusters, in one file of the user.

A profile has bootstrap servers and the path of a file with client properties. It never has a
password itself: those stay in that file, which the user protects.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from cli.output import CommandError, did_you_mean

VARIABLE: Final = "STELE_PROFILE"


@dataclass(frozen=True, slots=True)
class Profile:
    """``client_properties``: the absolute path of a file, if the cluster needs one."""

    bootstrap_servers: str
    client_properties: str | None = None


@dataclass(frozen=True, slots=True)
class Profiles:
    """``current``: the name of the default profile."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Profile:
        """Raises CommandError."""
        if name not in self.profiles:
            raise CommandError(
                f"there is no profile {name!r} in {profiles_file()}."
                f"{did_you_mean(name, self.profiles)} stele profile list shows them"
            )
        return self.profiles[name]

    def with_profile(self, name: str, profile: Profile) -> Profiles:
        return replace(self, profiles={**self.profiles, name: profile})

    def without(self, name: str) -> Profiles:
        self.named(name)
        left = {each: profile for each, profile in self.profiles.items() if each != name}
        return Profiles(left, None if self.current == name else self.current)


def profiles_file() -> Path:
    """Under the user's directory for configuration, as the XDG specification names it."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "stele" / "profiles.json"


def read_profiles() -> Profiles:
    """Without a file there are none. Raises CommandError."""
    file = profiles_file()
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        profiles = {name: Profile(**each) for name, each in content["profiles"].items()}
        return Profiles(profiles, content["current"])
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CommandError(
            f"{file} has no profiles that can be read: {error!r}; correct or remove it"
        ) from None


def write_profiles(profiles: Profiles) -> None:
    """Replace the file as a whole: nobody reads half of it, and only its owner can read it."""
    file = profiles_file()
    content = {
        "current": profiles.current,
        "profiles": {name: asdict(each) for name, each in sorted(profiles.profiles.items())},
    }
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, made = tempfile.mkstemp(dir=file.parent, prefix=".profiles-")  # mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                json.dump(content, out, indent=2)
                out.write("\n")
            os.replace(made, file)
        except BaseException:
            os.unlink(made)
            raise
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None
