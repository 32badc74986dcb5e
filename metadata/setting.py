"""A configuration key that is declared as an attribute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypedDict, TypeVar, Unpack, cast, overload

from metadata.config_key import ConfigKey, Scope, Type

T = TypeVar("T", int, bool, str, float, tuple[str, ...])


class Options(TypedDict, total=False):
    """What else a declaration may say, as ``ConfigKey``."""

    minimum: float
    maximum: float
    allowed: tuple[str, ...]
    not_built: tuple[tuple[str, str], ...]
    pattern: tuple[str, str]
    is_inert: bool
    scope: Scope
    synonym: str
    coarser: tuple[tuple[str, int], ...]


class Setting(Generic[T]):
    """One key, declared in the body of a class. The attribute's name is the key's, with underscores
    for dots. An instance of the class holds the value."""

    def __init__(self, kind: Type, default: str | None, doc: str, options: Options) -> None:
        """As ``ConfigKey``."""
        self._declared = kind, default, doc
        self._options = options

    def __set_name__(self, owner: type[object], name: str) -> None:
        self.key = ConfigKey(name.replace("_", "."), *self._declared, **self._options)

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
        """Its value, if ``raw`` is configured. Raises ApiError INVALID_CONFIG."""
        return cast(T, self.key.parse(raw.get(self.key.name, self.key.default or "")))


def integer(default: int | None, doc: str, **options: Unpack[Options]) -> Setting[int]:
    """A whole number of 32 bits; ``default`` None: it must be set."""
    return Setting(Type.INT, None if default is None else str(default), doc, options)


def long(default: int, doc: str, **options: Unpack[Options]) -> Setting[int]:
    """A whole number of 64 bits."""
    return Setting(Type.LONG, str(default), doc, options)


def double(default: float, doc: str, **options: Unpack[Options]) -> Setting[float]:
    return Setting(Type.DOUBLE, str(default), doc, options)


def boolean(default: bool, doc: str, **options: Unpack[Options]) -> Setting[bool]:
    return Setting(Type.BOOLEAN, str(default).lower(), doc, options)


def string(default: str, doc: str, **options: Unpack[Options]) -> Setting[str]:
    return Setting(Type.STRING, default, doc, options)


def strings(default: str, doc: str, **options: Unpack[Options]) -> Setting[tuple[str, ...]]:
    """Separated by commas."""
    return Setting(Type.LIST, default, doc, options)
