"""The rules of access in an image (``metadata.acl``), and an index of them by their resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from immutables import Map

from metadata.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from metadata.records import MetadataError
from stele.wire.v1 import metadata_pb2 as pb

ACL_RECORDS: Final = 6
"""The level of metadata.version from which on there are ACLs."""


class Pattern(NamedTuple):
    """The resources that rules name: one name, all names with a prefix, or all (literal
    ``*``)."""

    type: ResourceType
    pattern_type: PatternType
    name: str


Rules = Map[Acl, bytes]
"""Rules with their ids. Its own order differs from process to process: sort it."""

_NO_RULES: Rules = Map()
_NO_LENGTHS: Map[int, int] = Map()


class _Index(NamedTuple):
    """The rules by what is looked up. The maps belong together."""

    by_id: Map[bytes, Acl] = Map()
    by_pattern: Map[Pattern, Rules] = Map()
    # By type: how many prefixes there are of each length. So a name is looked up once for each
    # length, however many prefixes there are.
    lengths: Map[ResourceType, Map[int, int]] = Map()
    by_principal: Map[tuple[ResourceType, str], Rules] = Map()


class Acls:
    """Rules by their ids of 16 bytes. No two rules are equal."""

    __slots__ = ("index",)

    def __init__(self, index: _Index = _Index()) -> None:  # noqa: B008 - it is immutable
        """Made by ``AclsDelta`` and ``acls_of``."""
        self.index = index

    @property
    def by_id(self) -> Map[bytes, Acl]:
        return self.index.by_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Acls) and self.by_id == other.by_id

    def __hash__(self) -> int:
        return hash(self.by_id)

    def __len__(self) -> int:
        return len(self.by_id)

    def __repr__(self) -> str:
        return f"Acls({self.sorted()})"

    def sorted(self) -> list[Acl]:
        """All rules."""
        return sorted(self.by_id.values())

    def id_of(self, acl: Acl) -> bytes | None:
        """The id of an equal rule; None: there is none."""
        return self._of(_pattern_of(acl)).get(acl)

    def touching(self, resource_type: ResourceType, name: str) -> Iterator[Rules]:
        """The rules that speak of a resource, by pattern: its name, the wildcard, and its prefixes
        from the longest on. No group of rules is empty."""
        names = (name,) if name == WILDCARD else (name, WILDCARD)
        for literal in names:
            if rules := self._of(Pattern(resource_type, PatternType.LITERAL, literal)):
                yield rules
        for length in sorted(self.index.lengths.get(resource_type, _NO_LENGTHS), reverse=True):
            if length <= len(name) and (
                rules := self._of(Pattern(resource_type, PatternType.PREFIXED, name[:length]))
            ):
                yield rules

    def about(self, resource_type: ResourceType, principal: str) -> Iterator[Acl]:
        """What is said of a principal, and of everybody, about resources of a type. The order
        differs from process to process."""
        for each in {principal, WILDCARD_PRINCIPAL}:
            yield from self.index.by_principal.get((resource_type, each), _NO_RULES)

    def has_wildcard(self, resource_type: ResourceType) -> bool:
        """Whether a rule speaks of every resource of the type."""
        return Pattern(resource_type, PatternType.LITERAL, WILDCARD) in self.index.by_pattern

    def matching(self, wanted: AclFilter) -> list[tuple[Acl, bytes]]:
        """The rules that a filter matches with their ids, sorted."""
        if wanted.resource_name is not None and wanted.resource_type is not ResourceType.ANY:
            found = self._touched_by(wanted.resource_type, wanted.resource_name)
        else:
            found = ((acl, acl_id) for acl_id, acl in self.by_id.items())
        return sorted(each for each in found if wanted.matches(each[0]))

    def _touched_by(self, resource_type: ResourceType, name: str) -> Iterator[tuple[Acl, bytes]]:
        """A superset of what any filter of this name matches."""
        for rules in self.touching(resource_type, name):
            yield from rules.items()

    def _of(self, pattern: Pattern) -> Rules:
        return self.index.by_pattern.get(pattern, _NO_RULES)

    # ---------------------------------------------------------------- as an ImagePart

    def begin(self) -> AclsDelta:
        return AclsDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        for acl_id in sorted(self.by_id):
            yield record_of(self.by_id[acl_id], acl_id)


class AclsDelta:
    """Rules added and removed."""

    def __init__(self, before: Acls) -> None:
        self._result = before
        self._index = before.index

    def replay(self, record: pb.AclRecord) -> None:
        """Raises MetadataError for an id or a rule that is there already, or numbers that are not
        known."""
        acl, index = acl_of(record), self._index
        pattern = _pattern_of(acl)
        rules = index.by_pattern.get(pattern, _NO_RULES)
        if record.id in index.by_id or acl in rules:
            raise MetadataError(f"the ACL {record.id.hex()} is added twice: {acl.text()}")
        owner = acl.resource_type, acl.principal
        owned = index.by_principal.get(owner, _NO_RULES)
        self._index = _Index(
            index.by_id.set(record.id, acl),
            index.by_pattern.set(pattern, rules.set(acl, record.id)),
            index.lengths if rules else _counted(index.lengths, pattern, 1),
            index.by_principal.set(owner, owned.set(acl, record.id)),
        )

    def remove(self, record: pb.RemoveAclRecord) -> None:
        """Raises MetadataError for an id that is not there."""
        index = self._index
        acl = index.by_id.get(record.id)
        if acl is None:
            raise MetadataError(f"there is no ACL {record.id.hex()} to be removed")
        pattern, owner = _pattern_of(acl), (acl.resource_type, acl.principal)
        rules = index.by_pattern[pattern].delete(acl)
        owned = index.by_principal[owner].delete(acl)
        self._index = _Index(
            index.by_id.delete(record.id),
            index.by_pattern.set(pattern, rules) if rules else index.by_pattern.delete(pattern),
            index.lengths if rules else _counted(index.lengths, pattern, -1),
            index.by_principal.set(owner, owned) if owned else index.by_principal.delete(owner),
        )

    def skip_to(self, after: Acls) -> None:
        self._result, self._index = after, after.index

    def apply(self) -> Acls:
        if self._result.index is not self._index:
            self._result = Acls(self._index)
        return self._result


def _pattern_of(acl: Acl) -> Pattern:
    return Pattern(acl.resource_type, acl.pattern_type, acl.resource_name)


def _counted(
    lengths: Map[ResourceType, Map[int, int]], pattern: Pattern, change: int
) -> Map[ResourceType, Map[int, int]]:
    """A pattern comes or goes."""
    if pattern.pattern_type is not PatternType.PREFIXED:
        return lengths
    of_type = lengths.get(pattern.type, _NO_LENGTHS)
    length = len(pattern.name)
    count = of_type.get(length, 0) + change
    of_type = of_type.set(length, count) if count else of_type.delete(length)
    return lengths.set(pattern.type, of_type)


def acl_of(record: pb.AclRecord) -> Acl:
    """Raises MetadataError for numbers that are not known."""
    try:
        return Acl(
            ResourceType(record.resource_type),
            record.resource_name,
            PatternType(record.pattern_type),
            record.principal,
            record.host,
            Operation(record.operation),
            Permission(record.permission),
        )
    except ValueError as error:
        raise MetadataError(f"the ACL {record.id.hex()} cannot be read: {error}") from error


def record_of(acl: Acl, acl_id: bytes) -> pb.MetadataRecord:
    """The record that adds the rule."""
    return pb.MetadataRecord(
        acl=pb.AclRecord(
            id=acl_id,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission=acl.permission,
        )
    )


def acls_of(rules: Iterator[tuple[Acl, bytes]] | list[tuple[Acl, bytes]]) -> Acls:
    """The ACLs with these rules and ids."""
    delta = AclsDelta(Acls())
    for acl, acl_id in rules:
        delta.replay(record_of(acl, acl_id).acl)
    return delta.apply()
