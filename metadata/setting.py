"""A configuration key that is declared as an attribute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar, cast, overload

from metadata.config_key import ConfigKey, Type

T = TypeVar("T", int, bool, str)


class Setting(Generic[T]):
    """One key, declared in the body of a class. The attribute's name is the key's, with underscores
    for dots. An instance of the class holds the value."""

    def __init__(
        self,
        kind: Type,
        default: str | None,
        doc: str,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
    ) -> None:
        """As ``ConfigKey``."""
        self._declared = kind, default, doc, minimum, maximum

    def __set_name__(self, owner: type[object], name: str) -> None:
        kind, default, doc, minimum, maximum = self._declared
        self.key = ConfigKey(
            name.replace("_", "."), kind, default, doc, minimum=minimum, maximum=maximum
        )

    @overload
    def __get__(self, instance: None, owner: type[object]) -> Setting[T]: ...

    @overload
    def __get__(self, instance: object, owner: type[object]) -> T: ...

    def __get__(self, instance: object | None, owner: type[object]) -> Setting[T] | T:
        # An instance has its value in its own dictionary, which comes before this.
        if instance is None:
            return self
        raise AttributeError(f"{self.key.name} was not read")

    def read(self, raw: Mapping[str, str]) -> T:
        """Its value where ``raw`` is what was set. Raises ApiError INVALID_CONFIG."""
        return cast(T, self.key.parse(raw.get(self.key.name, self.key.default or "")))


def integer(
    default: int | None, doc: str, *, minimum: int | None = None, maximum: int | None = None
) -> Setting[int]:
    """A whole number of 32 bits; ``default`` None: it must be set."""
    text = None if default is None else str(default)
    return Setting(Type.INT, text, doc, minimum=minimum, maximum=maximum)


def long(default: int, doc: str, *, minimum: int | None = None) -> Setting[int]:
    """A whole number of 64 bits."""
    return Setting(Type.LONG, str(default), doc, minimum=minimum)


def boolean(default: bool, doc: str) -> Setting[bool]:
    return Setting(Type.BOOLEAN, str(default).lower(), doc)


def string(default: str, doc: str) -> Setting[str]:
    return Setting(Type.STRING, default, doc)
