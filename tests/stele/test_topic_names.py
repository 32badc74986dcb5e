"""Valid names of topics, and the messages about invalid ones."""

from __future__ import annotations

import pytest

from stele.topic_names import LENGTH_MAX, fault_in


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * LENGTH_MAX, "__consumer_offsets"])
def test_sound_names(name: str) -> None:
    assert fault_in(name) is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "empty"),
        (".", "empty"),
        ("..", "empty"),
        ("x" * (LENGTH_MAX + 1), "250 characters, and at most 249"),
        ("a b", "letters"),
        ("a\n", "letters"),
        ("ä", "letters"),
        ("a/b", "letters"),
    ],
)
def test_the_error_says_what_is_wrong_with_other_names(name: str, told: str) -> None:
    assert told in (fault_in(name) or "")
