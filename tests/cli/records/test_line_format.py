"""What ``consume`` prints of a record, by name and by kcat's letters."""

from __future__ import annotations

import json

import pytest

from cli.output import CommandError, UsageError
from cli.records.json_form import record_of_json, text_or_base64
from cli.records.line_format import ValueForm, line_format
from stele.records import ConsumerRecord, Headers, ShareRecord, TimestampType


def record(
    value: bytes | None = b"v", key: bytes | None = b"k", headers: Headers = ()
) -> ConsumerRecord:
    return ConsumerRecord("orders", 3, 7, 1234, TimestampType.CREATE_TIME, key, value, headers, 0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("value", b"v\n"),
        ("key-value", b"k\tv\n"),
        ("%k %v %h %o %T %t %p", b"k v a=1,b=NULL 7 1234 orders 3\n"),
        ("%t[%p]: %s\\n", b"orders[3]: v\n"),
        ("%K/%S%%", b"1/1%\n"),
        ("%v\\x00", b"v\x00"),
        ("a\\tb\\\\%o", b"a\tb\\7\n"),
        ("é %v", "é v\n".encode()),
    ],
)
def test_a_line_shows_what_its_format_names(text: str, line: bytes) -> None:
    shown = record(headers=(("a", b"1"), ("b", None)))
    assert line_format(text, ValueForm.TEXT)(shown) == line


def test_json_shows_how_often_a_record_of_a_share_group_was_delivered() -> None:
    line = line_format("json", ValueForm.TEXT)(ShareRecord(*record(), 2))
    assert json.loads(line)["delivery_count"] == 2
    assert "delivery_count" not in json.loads(line_format("json", ValueForm.TEXT)(record()))
    assert record_of_json(line).value == b"v"


def test_a_tombstone_without_a_key_has_the_size_minus_one() -> None:
    assert line_format("%k|%v|%K|%S", ValueForm.TEXT)(record(None, None)) == b"||-1|-1\n"


@pytest.mark.parametrize(
    ("form", "value", "plain", "in_json"),
    [
        (ValueForm.TEXT, b"\xff", b"\xff", {"base64": "/w=="}),
        (ValueForm.HEX, b"\x00\xff", b"00ff", "00ff"),
        (ValueForm.JSON, b'{"a": \n 1}', b'{"a":1}', {"a": 1}),
        (ValueForm.JSON, None, b"null", None),
        (ValueForm.HEX, None, b"", None),
    ],
)
def test_a_value_has_the_form_that_is_asked_for(
    form: ValueForm, value: bytes | None, plain: bytes, in_json: object
) -> None:
    assert line_format("%v", form)(record(value)) == plain + b"\n"
    assert json.loads(line_format("json", form)(record(value)))["value"] == in_json


def test_a_value_that_is_not_json_is_named() -> None:
    with pytest.raises(CommandError, match="orders-3: the value at offset 7 is not JSON"):
        line_format("value", ValueForm.JSON)(record(b"{"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jsn", "'jsn' is not one of value, key-value, json.* Did you mean 'json'"),
        ("%q", "%q is no letter"),
        ("50%", "% is no letter"),
        ("%v\\q", "is no escape"),
    ],
)
def test_a_format_that_does_not_exist_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        line_format(text, ValueForm.TEXT)


@pytest.mark.parametrize("value", [b"text", b"\xff\x00", b"", None])
@pytest.mark.parametrize("key", [b"k", b"\xfe", None])
def test_what_consume_prints_as_json_is_what_produce_reads(
    key: bytes | None, value: bytes | None
) -> None:
    headers = (("a", b"\xff"), ("a", None), ("b", b""))
    line = line_format("json", ValueForm.TEXT)(record(value, key, headers))
    assert record_of_json(line) == (key, value, headers, 1234, 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"x", "'x' is not JSON"),
        (b"[]", "no JSON object"),
        (b'{"value": "v", "kye": 1}', "no field 'kye'. Did you mean 'key'"),
        (b'{"key": "k"}', 'no "value"; a tombstone has'),
        (b'{"value": 5}', '"value" is neither a text'),
        (b'{"value": {"base64": "?"}}', 'the "base64" of "value" cannot be decoded'),
        (b'{"value": "v", "headers": ["a"]}', '"headers" is neither'),
        (b'{"value": "v", "headers": {"a": 1}}', '"headers.a" is neither'),
        (b'{"value": "v", "partition": -1}', '"partition" is no whole number'),
        (b'{"value": "v", "partition": true}', '"partition" is no whole number'),
        (b'{"value": "v", "timestamp_ms": "now"}', '"timestamp_ms" is no whole number'),
    ],
)
def test_a_line_that_is_no_record_is_refused(line: bytes, said: str) -> None:
    with pytest.raises(CommandError) as refusal:
        record_of_json(line)
    assert said in str(refusal.value)


def test_headers_may_also_be_an_object() -> None:
    assert record_of_json(b'{"value": null, "headers": {"a": "1", "b": null}}') == (
        *(None, None, (("a", b"1"), ("b", None)), None, None),
    )


def test_bytes_are_shown_as_text_where_they_are_text() -> None:
    assert text_or_base64("é".encode()) == "é"
    assert text_or_base64(b"\xff") == {"base64": "/w=="}
    assert text_or_base64(None) is None
