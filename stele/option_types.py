"""Whether options have names and types that their declaration allows."""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from stele.errors import ConfigError


def check_names(kind: type, given: Iterable[str]) -> None:
    """Raises ConfigError for an option that the dataclass ``kind`` does not have."""
    known = sorted((each.name for each in fields(kind)), key=_is_about_security)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name.replace(".", "_"), known, n=1)
            hint = f": did you mean {near[0]}?" if near else f"; there are: {', '.join(known)}"
            raise ConfigError(f"there is no option {name}{hint}")


def _is_about_security(name: str) -> bool:
    return name.startswith(("security_", "ssl_", "sasl_"))


def check_types(config: Any) -> None:
    """Raises ConfigError for an option whose value is of a wrong type. Values of a type that has
    only some values are for others to check."""
    for name, declared in _declared(type(config)).items():
        value = getattr(config, name)
        if not _is(value, declared):
            raise ConfigError(
                f"{name}={value!r} must be {_in_words(declared)}, not {type(value).__name__}"
            )


_DECLARED: dict[type, dict[str, Any]] = {}  # by class: finding the types takes long


def _declared(kind: type) -> dict[str, Any]:
    if kind not in _DECLARED:
        hints = get_type_hints(kind)
        _DECLARED[kind] = {each.name: hints[each.name] for each in fields(kind)}
    return _DECLARED[kind]


def _is(value: object, declared: Any) -> bool:
    origin = get_origin(declared)
    if origin in (Union, types.UnionType):
        return any(_is(value, each) for each in get_args(declared))
    if origin is Literal:
        return True
    if origin is Callable:
        return callable(value)
    if origin is Sequence:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        return all(_is(each, get_args(declared)[0]) for each in value)
    if declared in (int, float):
        allowed = (int,) if declared is int else (int, float)
        return isinstance(value, allowed) and not isinstance(value, bool)
    return bool(isinstance(value, declared))


def _in_words(declared: Any) -> str:
    if get_origin(declared) in (Union, types.UnionType):
        return " or ".join(_in_words(each) for each in get_args(declared))
    if get_origin(declared) is Callable:
        return "a function"
    if get_origin(declared) is Sequence:
        return "a list of text"
    return {int: "a whole number", float: "a number", str: "text", bool: "True or False"}.get(
        declared, "None"
    )
