from __future__ import annotations

import pytest

from broker.coordinator.group.subscription import subscribed_topics


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
