from __future__ import annotations

import pytest

from broker.coordinator.group.classic.subscription import (
    TOPICS_READ_MAX,
    all_subscribed_topics,
    subscribed_topics,
)


def test_topics() -> None:
    data = b"\0\3\0\0\0\2\0\1a\0\2bb" + b"\xff\xff\xff\xffwhat later versions say"
    assert subscribed_topics(data) == {"a", "bb"}
    assert subscribed_topics(b"\0\0\0\0\0\0") == set()
    assert subscribed_topics(b"\0\0\0\0\0\2\0\0\0\1a") == {"", "a"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0\0",
        b"\xff\xff\0\0\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\0\5a",
        b"\0\0\0\0\0\1\xff\xffa",
        b"\0\0\0\0\0\1\0\1\xff",
        b"\0\0\0\0\0\2\0\1a",
    ],
)
def test_other_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"subscription|decode"):
        subscribed_topics(data)


def metadata_of(*topics: str) -> bytes:
    named = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + named + b"\xff\xff\xff\xff"


def test_topics_of_members_are_put_together_up_to_a_bound() -> None:
    names = [str(number) for number in range(TOPICS_READ_MAX)]
    told = [(names[at], metadata_of(*names[at : at + 1000])) for at in range(0, len(names), 1000)]
    assert all_subscribed_topics(told) == set(names)
    with pytest.raises(ValueError, match=f"c: the members name more than {TOPICS_READ_MAX}"):
        all_subscribed_topics([*told, ("c", metadata_of("0"))])


def test_the_member_with_wrong_metadata_is_named() -> None:
    with pytest.raises(ValueError, match="b: "):
        all_subscribed_topics([("a", metadata_of("t")), ("b", b"")])
