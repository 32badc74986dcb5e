"""Kafka's JAAS text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.errors import ConfigError
from stele.security.jaas import parse_jaas


def test_kafkas_own_example() -> None:
    text = """org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password='a;b"c' user_alice=secret user_bob="x\\"y\\\\z";"""
    assert parse_jaas(text, "k") == {
        "username": "admin",
        "password": 'a;b"c',
        "user_alice": "secret",
        "user_bob": 'x"y\\z',
    }
    assert parse_jaas("M required ;", "k") == {}
    assert parse_jaas("M required;", "k") == {}


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text()))
def test_any_value_in_quotation_marks_comes_back(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = "M required " + " ".join(f"{name}={quoted(v)}" for name, v in options.items()) + ";"
    assert parse_jaas(text, "k") == options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must begin with a login module"),
        ("username=a", "must begin with a login module"),
        ("M perhaps a=b;", "must begin with a login module"),
        ('M required a="hidden"', "a semicolon must end it after the option a (character 22)"),
        ('M required a="hidden" "hidden";', "the semicolon must stand after the option a"),
        ("M required a=;", "the semicolon must stand after the module"),
        ('M required a="hidden;', "the semicolon must stand after the module"),
        ("M required a=b; c=hidden;", "the semicolon must stand after the option a"),
        ("M required a=hidden a=c;", "it has the option a twice"),
    ],
)
def test_what_is_wrong_is_reported_without_a_value(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jaas(text, "sasl_jaas_config")
    assert str(caught.value).startswith("sasl_jaas_config: ")
    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)
