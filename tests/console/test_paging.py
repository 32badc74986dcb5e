"""Pages of lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.paging import Paged


@given(st.integers(0, 300), st.integers(1, 60))
def test_the_pages_of_a_list_are_the_list(total: int, size: int) -> None:
    items = range(total)
    count = Paged.of(items, 1, size).count
    pages = [Paged.of(items, number + 1, size) for number in range(count)]
    assert [each for page in pages for each in page.items] == list(items)
    assert all(page.items[0] == page.first for page in pages if page.items)


@given(st.integers(), st.integers(0, 300))
def test_every_number_stands_for_a_page(number: int, total: int) -> None:
    paged = Paged.of(range(total), number)
    assert 1 <= paged.number <= paged.count
    assert paged.total == total
