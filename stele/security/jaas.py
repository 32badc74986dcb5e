"""Kafka's JAAS text: ``org.apache.kafka...PlainLoginModule required username="a" password="b";``.

Users paste it from documentation of Kafka, so its options are read. The class of the login module
decides nothing: the mechanism does.
"""

from __future__ import annotations

import re
from typing import Final

from stele.errors import ConfigError

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_OPTION: Final = re.compile(
    r"""\s*(?P<name>[A-Za-z0-9_.\-]+)\s*=\s*
        (?: "(?P<double>(?:\\.|[^"\\])*)"
          | '(?P<single>(?:\\.|[^'\\])*)'
          | (?P<bare>[^\s;"']+) )""",
    re.VERBOSE | re.DOTALL,
)
_HEAD: Final = re.compile(r"\s*(?P<module>[A-Za-z0-9_.$]+)\s+(?P<flag>[A-Za-z]+)(?=[\s;])")


def parse_jaas(text: str, key: str) -> dict[str, str]:
    """The options of one login module. Raises ConfigError, which names ``key`` and the place, and
    shows no value: values are secrets."""
    head = _HEAD.match(text)
    if head is None or head["flag"].lower() not in _FLAGS:
        raise ConfigError(
            f'{key}: it must begin with a login module: MODULE required name="value";'
        )
    options: dict[str, str] = {}
    position = head.end()
    while True:
        found = _OPTION.match(text, position)
        if found is None:
            break
        quoted = found["double"] if found["double"] is not None else found["single"]
        value = (
            found["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        )
        if found["name"] in options:
            raise ConfigError(f"{key}: it has the option {found['name']} twice")
        options[found["name"]] = value
        position = found.end()
    rest = text[position:].strip()
    if rest != ";":
        where = f"after the option {next(reversed(options))}" if options else "after the module"
        wanted = (
            "a semicolon must end it" if not rest else 'name="value" or the semicolon must stand'
        )
        raise ConfigError(f"{key}: {wanted} {where} (character {position + 1})")
    return options
