"""Regular expressions over topic names, beside Python's own."""

from __future__ import annotations

import contextlib
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.name_pattern import EXPRESSION_MAX, STATES_MAX, NamePattern, PatternError

NAMES = st.text("aAbB1._-", max_size=8)
ATOMS = st.sampled_from(
    (
        *("a", "B", "1", ".", r"\.", "-", "_", r"\d", r"\w", r"\W", r"\D", r"\s", r"\S"),
        *("[ab]", "[^a.]", "[a-b1-9]", "[-a]", r"[\d-]", r"[^\w]", "[]a]", r"\x61"),
        *("^", "$", r"\A"),
    )
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})"),
        st.tuples(inner, inner).map(lambda both: f"({both[0]}|{both[1]}|)"),
        st.tuples(inner, st.sampled_from(("*", "+", "?", "*?", "{2}", "{0,2}", "{1,}"))).map(
            lambda both: f"({both[0]}){both[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(
    expression=EXPRESSIONS, names=st.lists(NAMES, max_size=8), flags=st.sampled_from(("", "(?i)"))
)
def test_a_name_matches_as_in_pythons_expressions(
    expression: str, names: list[str], flags: str
) -> None:
    pattern, twin = NamePattern(flags + expression), re.compile(flags + expression, re.ASCII)
    for name in names:
        assert pattern.matches(name) == (twin.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    ("expression", "name", "matches"),
    [
        ("", "", True),
        ("", "a", False),
        ("orders-.*", "orders-eu", True),
        ("orders-.*", "my-orders-eu", False),
        ("^orders$", "orders", True),
        ("(?i)^orders$", "ORDERS", True),
        ("(?i)[^a]", "A", False),
        ("(^orders$)|(^a)", "orders", True),
        ("(^orders$)|(^a)", "a", True),
        (r"\Aa\z", "a", True),
        ("a^b", "ab", False),
        ("a$b", "ab", False),
        ("$^", "", True),
        ("a|b|c", "c", True),
        ("(?P<name>a)", "a", True),
        ("(?<name>a)", "a", True),
        ("[[:alpha:]]+", "ab", True),
        ("[[:^alpha:]]+", "ab", False),
        ("[[:digit:]a]+", "1a", True),
        ("a{,2}", "a{,2}", True),
        ("a{x", "a{x", True),
        (r"\t", "a", False),
        (r"[\.-]", "-", True),
        ("a{3}", "aaa", True),
        ("a{3}", "aa", False),
        ("(a{2}){2,}", "aaaaa", False),
        ("(a*)*", "aaa", True),
        ("(a|b)*?c", "abac", True),
    ],
)
def test_names_match_as_a_whole(expression: str, name: str, matches: bool) -> None:
    assert NamePattern(expression).matches(name) is matches


@pytest.mark.parametrize(
    "expression",
    [
        *("(", ")", "a)", "(?:a", "[a", "[", "*", "a**", "a{2}{3}", "+a", "a|*", "\\", r"\pL"),
        *(r"\1", r"\b", "(?=a)", "(?!a)", "(?<=a)", "(?i:a)", "(?P<a", "[b-a]", "[[:no:]]"),
        *("[[:alpha", r"\xg0", r"\x1", "a{1001}", "a{3,2}", r"[\d-z]"),
        "(" * 60 + ")" * 60,
    ],
)
def test_other_expressions_are_refused(expression: str) -> None:
    with pytest.raises(PatternError):
        NamePattern(expression)


@pytest.mark.parametrize(
    "expression",
    [
        *("a{1000}" * 2, "(a{100}){100}", "((((){1000}){1000}){1000}){1000}"),
        *("(" + "|".join("a" * 2000), "(((a?){30}){30}){30}", "[" + "a" * 30_000),
    ],
)
def test_large_expressions_are_refused_soon(expression: str) -> None:
    began = time.process_time()
    with pytest.raises(PatternError):
        NamePattern(expression)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "expression",
    ["(a|a)*b", "(a*)*b", "(a+)+b", "(.*a){40}b", "((a?){20}a{20}){6}", "(a|b)*a(a|b){120}c"],
)
def test_hostile_expressions_end_soon(expression: str) -> None:
    pattern = NamePattern(expression)
    began = time.process_time()
    names = ("a" * (249 - number) + "b" * number for number in range(100))
    with contextlib.suppress(PatternError):
        for name in names:
            pattern.matches(name)
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    "piece", ["{", "(?:)", "[[:alpha:]]", "[a-z]", "|", "a?", "()", "(?P<a>)", "a{1", "[^a]"]
)
def test_no_expression_takes_long_to_read(piece: str) -> None:
    longest = piece * (EXPRESSION_MAX // len(piece))
    began = time.process_time()
    with contextlib.suppress(PatternError):
        NamePattern(longest)
    assert time.process_time() - began < 2
    with pytest.raises(PatternError, match="characters"):
        NamePattern(longest + "." * len(piece))
    assert time.process_time() - began < 2


def test_the_size_of_an_automaton_is_bounded() -> None:
    assert NamePattern("a" * (STATES_MAX - 1)).matches("a" * (STATES_MAX - 1))
    with pytest.raises(PatternError, match="states"):
        NamePattern("a" * STATES_MAX)


def test_names_of_other_things_than_topics_have_any_characters() -> None:
    name = "a b/ü:\u4e2d"
    for expression in (".*", "a b/ü:.", r"a\sb[/]\W.+", r"[^x]*", "(?i)A B/.*"):
        assert NamePattern(expression, of_topics=False).matches(name), expression
    for expression in ("a b", r"\w*", "[a-z]*", ".*ö.*"):
        assert not NamePattern(expression, of_topics=False).matches(name), expression
    assert not NamePattern(".*").matches(name)
