"""Options of our clients by the names of Kafka's properties."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cli.output import CommandError, UsageError, did_you_mean, key_values

if TYPE_CHECKING:
    from stele.config import ClientConfig

_OTHER_NAMES: Final = {
    "compression": "compression.type",
    "max_in_flight": "max.in.flight.requests.per.connection",
}
_CALLBACKS: Final = {"on_acknowledged", "on_renewed", "on_truncation", "on_wait"}
_NO_PROPERTIES: Final = {"bootstrap_servers", "total_timeout_ms", *_CALLBACKS}
_IGNORED: Final = {
    f"{each}.{kind}" for each in ("key", "value") for kind in ("serializer", "deserializer")
}
"""Keys and values are bytes here."""

BOOTSTRAP: Final = "bootstrap.servers"


def read_properties(file: Path | None, given: Sequence[str], option: str) -> dict[str, str]:
    """The properties of a file, then those of ``option``. Raises CommandError."""
    from stele.properties import parse_properties

    properties: dict[str, str] = {}
    if file is not None:
        try:
            properties.update(parse_properties(file.read_text(encoding="utf-8")))
        except ValueError as error:
            raise CommandError(f"{file} is no file of properties: {error}") from error
    # Kafka's tool takes several after one option.
    properties.update(key_values([each for some in given for each in some.split()], option))
    return properties


_SECRETS: Final = ("security.", "ssl.", "sasl.")


def option_properties(
    config: type[ClientConfig], given: Sequence[str], instead: Mapping[str, str]
) -> dict[str, Any]:
    """Keyword arguments of a client from ``-X NAME=VALUE``. ``instead``: the options of the command
    that say what these properties would. Raises CommandError."""
    properties = key_values(given, "-X")
    for name in properties:
        if name.startswith(_SECRETS):
            raise UsageError(
                f"-X {name}: properties about security belong into the file of --command-config, "
                "because other users of the machine can read arguments"
            )
        if option := {BOOTSTRAP: "--bootstrap-server", **instead}.get(name):
            raise UsageError(f"-X {name}: give {option} instead")
    return client_options(config, properties)


def client_options(config: type[ClientConfig], properties: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments of a client. Raises CommandError for what it does not have."""
    fields = {
        _OTHER_NAMES.get(field.name, field.name.replace("_", ".")): field
        for field in dataclasses.fields(config)
        if field.name not in _NO_PROPERTIES
    }
    options: dict[str, Any] = {}
    for name, text in properties.items():
        if name in _IGNORED or name == BOOTSTRAP:
            continue
        if name not in fields:
            raise CommandError(
                f"the clients of Stele have no property {name!r}.{did_you_mean(name, fields)}"
            )
        options[fields[name].name] = _value(name, text, fields[name])
    return options


def _value(name: str, text: str, field: dataclasses.Field[Any]) -> object:
    """``text`` as the type that the field has."""
    default = field.default
    if "str" in str(field.type):
        return text
    if isinstance(default, bool) or default is None:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise UsageError(f"{name}={text}: give true or false")
    if isinstance(default, str):
        return text
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name}={text} is not a whole number") from None
