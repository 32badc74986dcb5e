"""Principals: their text ``Type:name``, and the rules that make one of a certificate's subject."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

USER: Final = "User"
"""The type of principals that a connection proves."""

DEFAULT_RULES: Final = "DEFAULT"


class PrincipalError(ValueError):
    """A text is no principal, or a rule cannot be read; the message says what to change."""


class NoRuleMatchesError(ValueError):
    """No rule of ssl.principal.mapping.rules matches the subject of a certificate."""


def parse_principal(text: str) -> tuple[str, str]:
    """The type and the name of ``Type:name``. The name may have colons. Raises PrincipalError."""
    kind, colon, name = text.partition(":")
    if not colon or not kind:
        raise PrincipalError(f"principal {text!r} is not of the form Type:name, e.g. User:alice")
    return kind, name


def user(name: str) -> str:
    """The principal of a user of that name."""
    return f"{USER}:{name}"


# As in Kafka: a slash within a pattern or a replacement has a backslash before it.
_PART: Final = r"(?:\\.|[^\\/])*"
_RULE: Final = re.compile(rf"RULE:(?P<pattern>{_PART})/(?P<replacement>{_PART})/(?P<case>[LU]?)")
_SPLIT: Final = re.compile(rf"\s*(DEFAULT|RULE:{_PART}/{_PART}/[LU]?.*?|.*?)\s*(?:,\s*|$)")
_JAVAS_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_CASES: Final[Mapping[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}
_REFERENCE: Final = re.compile(
    r"\\(?P<literal>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[A-Za-z0-9]+)\}|\$", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule: a subject that the whole pattern matches becomes the replacement's text."""

    pattern: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str]
    change_case: Callable[[str], str]

    def apply(self, subject: str) -> str | None:
        if self.pattern.fullmatch(subject) is None:
            return None
        return self.change_case(self._replaced(subject))

    def _replaced(self, subject: str) -> str:
        """The subject with each occurrence replaced, found as by Java's ``replaceAll``: a lazy
        pattern may find parts of the subject only, and Python's ``sub`` finds others."""
        parts: list[str] = []
        copied = position = 0
        while position <= len(subject):
            found = self.pattern.search(subject, position)
            if found is None:
                break
            parts += subject[copied : found.start()], self.replacement(found)
            copied = found.end()
            position = copied + (found.start() == copied)
        return "".join((*parts, subject[copied:]))


class MappingRules:
    """``ssl.principal.mapping.rules``: the first rule that matches gives the name of the user.

    An example: ``RULE:^CN=(.*?),OU=Services.*$/$1/L,DEFAULT`` makes ``CN=Orders,OU=Services,O=a``
    the user ``orders``, and leaves every other subject as it is.
    """

    def __init__(self, text: str = DEFAULT_RULES) -> None:
        """Raises PrincipalError."""
        parts = (match[1] for match in _SPLIT.finditer(text.strip()))
        self._rules: Sequence[_Rule | None] = [_parse(part) for part in parts if part]

    def name_of(self, subject: str) -> str:
        """The user's name. Raises NoRuleMatchesError."""
        for rule in self._rules:
            if rule is None:
                return subject
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoRuleMatchesError(
            f"no rule of ssl.principal.mapping.rules matches the subject {subject!r}"
        )


def _parse(text: str) -> _Rule | None:
    """None for DEFAULT."""
    if text == "DEFAULT":
        return None
    match = _RULE.fullmatch(text)
    if match is None:
        raise PrincipalError(
            f"ssl.principal.mapping.rules: {text!r} is neither DEFAULT nor of the form "
            "RULE:pattern/replacement/ with L or U behind it"
        )
    try:
        # Java's character classes are those of ASCII.
        pattern = re.compile(_JAVAS_NAMED_GROUP.sub("(?P<", match["pattern"]), re.ASCII)
    except re.error as error:
        raise PrincipalError(
            f"ssl.principal.mapping.rules: the pattern of {text!r} cannot be read: {error}"
        ) from None
    replacement = _replacement(text, match["replacement"], pattern)
    return _Rule(pattern, replacement, _CASES[match["case"]])


def _replacement(rule: str, text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """The replacement, of literal text and references to groups, by number or by name."""
    parts: list[str | int] = []  # a number is a reference
    position = 0
    for match in _REFERENCE.finditer(text):
        parts.append(text[position : match.start()])
        parts += _reference(rule, match, pattern)
        position = match.end()
    parts.append(text[position:])
    return lambda found: "".join(
        part if isinstance(part, str) else found[part] or "" for part in parts
    )


def _reference(rule: str, match: re.Match[str], pattern: re.Pattern[str]) -> list[str | int]:
    """What a backslash or a dollar stands for."""
    if match["literal"] is not None:
        return [match["literal"]]
    if match["name"] in pattern.groupindex:
        return [pattern.groupindex[match["name"]]]
    digits = match["number"]
    if digits is None or (int(digits[0]) > 0 and not pattern.groups):
        raise PrincipalError(
            f"ssl.principal.mapping.rules: {match[0]} in the replacement of {rule!r} refers to no "
            "group of its pattern; a dollar that is meant literally has a backslash before it"
        )
    # As in Java, a number has as many digits as there are groups for: $12 is the first group and a
    # 2 if there are fewer than 12.
    group, used = int(digits[0]), 1
    while used < len(digits) and group * 10 + int(digits[used]) <= pattern.groups:
        group, used = group * 10 + int(digits[used]), used + 1
    if group > pattern.groups:
        return [match[0]]  # as in Kafka: literally
    return [group, digits[used:]]
