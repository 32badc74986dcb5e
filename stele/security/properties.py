"""A file of client properties, as Kafka's tools take it, as options of our clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from stele.errors import ConfigError
from stele.properties import parse_properties
from stele.security.options import SecurityOptions

VARIABLE: Final = "STELE_COMMAND_CONFIG"
"""The environment variable with the path of a file, where none is named."""

_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PREFIXES: Final = ("security.", "ssl.", "sasl.")
_NAMES: Final = {name.replace("_", "."): name for name in SecurityOptions.__annotations__}


def security_options(file: str | os.PathLike[str] | None = None) -> SecurityOptions:
    """The options about security in a file of client properties, for any client of Stele.

    >>> Producer("kafka.example.com:9093", **stele.security_options("client.properties"))

    ``file`` None: the one that the variable STELE_COMMAND_CONFIG names; without it there are no
    options. Other properties of the file are passed by. Raises ConfigError if the file cannot be
    read, or has a property about security that does not exist.
    """
    path = os.environ.get(VARIABLE) if file is None else os.fspath(file)
    if not path:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: the client properties cannot be read: {said}") from error
    return options_of(parse_properties(text), path)


def options_of(properties: Mapping[str, str], where: str) -> SecurityOptions:
    """The options about security among properties. Raises ConfigError, which names ``where`` they
    stand."""
    found = {}
    for name, value in properties.items():
        if not name.startswith(_PREFIXES):
            continue
        if name not in _NAMES:
            import difflib

            near = difflib.get_close_matches(name, _NAMES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{where}: the clients of Stele have no property {name}{hint}")
        found[_NAMES[name]] = value
    return cast(SecurityOptions, found)


def as_properties(options: SecurityOptions) -> dict[str, str]:
    """The same options by the names of Kafka's properties."""
    return {name.replace("_", "."): str(value) for name, value in options.items()}


def login_properties(user: str, password: str, mechanism: str) -> dict[str, str]:
    """The properties of a login by SCRAM, for our clients and for Kafka's own."""
    options = {"username": user, "password": password}
    escaped = {k: v.replace("\\", "\\\\").replace('"', '\\"') for k, v in options.items()}
    quoted = " ".join(f'{name}="{value}"' for name, value in escaped.items())
    return {
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        # Java's clients know these two instead.
        "sasl.jaas.config": f"{_SCRAM_MODULE} required {quoted};",
    }
