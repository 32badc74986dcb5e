"""Admin inherits its parts, which are one object: no part may hide a name of another."""

from __future__ import annotations

from collections import Counter

from stele.admin.admin import Admin
from stele.admin.part import AdminPart

PARTS = [each for each in Admin.__mro__ if issubclass(each, AdminPart) and each is not AdminPart]


def test_no_two_parts_have_a_method_of_one_name() -> None:
    names = Counter(name for part in PARTS for name in vars(part) if not name.startswith("__"))
    assert len(PARTS) > 8
    assert [name for name, count in names.items() if count > 1] == []
