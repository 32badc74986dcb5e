"""Any bytes, and any JSON, as text."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from console.record_text import Form, shown


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
))  # fmt: skip
def test_indented_json_has_the_same_value(value: object) -> None:
    text = json.dumps(value)
    found = shown(text.encode(), Form.AUTO, most_bytes=1_000_000)
    assert json.loads(found.text) == value


@given(st.binary(max_size=100), st.sampled_from(Form), st.integers(1, 50))
def test_any_bytes_are_shown(data: bytes, form: Form, most_bytes: int) -> None:
    found = shown(data, form, most_bytes)
    assert found.size_bytes == len(data)
    if found.form == "hex":
        codes = "".join(line[10:57] for line in found.text.splitlines())
        assert bytes.fromhex(codes) == data[:most_bytes]
