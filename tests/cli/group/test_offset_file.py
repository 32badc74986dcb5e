"""Files of offsets, in the forms of Kafka's group tool."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.group.offset_file import offsets_text, read_offsets
from cli.output import CommandError
from stele.ids import TopicPartition


def file_of(directory: Path, text: str) -> Path:
    path = directory / "offsets.csv"
    path.write_bytes(text.encode())
    return path


def test_one_group(tmp_path: Path) -> None:
    path = file_of(tmp_path, "orders,0,5\n\norders, 1, 0\r\n")
    offsets = {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 0}
    assert read_offsets(path, ["g"]) == {"g": offsets}
    assert offsets_text({"g": offsets}) == "orders,0,5\norders,1,0\n"


def test_several_groups(tmp_path: Path) -> None:
    path = file_of(tmp_path, 'g,orders,0,5\n"a ""b"",c",orders,0,6\n')
    found = read_offsets(path, ["g", "h"])
    assert found == {
        "g": {TopicPartition("orders", 0): 5},
        'a "b",c': {TopicPartition("orders", 0): 6},
    }
    assert offsets_text(found) == 'g,orders,0,5\n"a ""b"",c",orders,0,6\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no partitions"),
        ("orders,0\n", "row 1 is not of the form"),
        ("a,b,c,1,2\n", "row 1 is not of the form"),
        ("orders,0,1\norders,x,1\n", "row 2: the partition 'x' is not a number"),
        ("orders,0,-1\n", "the offset '-1' is not a number"),
        ("orders,0,1\norders,0,2\n", "row 2: orders-0 of group 'g' is there already"),
        ('"orders,0,1\n', "is not a CSV file"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CommandError) as refused:
        read_offsets(file_of(tmp_path, text), ["g"])
    assert said in str(refused.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_bytes(b"\xff,0,1\n")
    with pytest.raises(CommandError, match="is not a CSV file"):
        read_offsets(path, ["g"])


def test_a_row_without_group_for_several_groups(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="names no group, and there are 2"):
        read_offsets(file_of(tmp_path, "orders,0,1\n"), ["g", "h"])


names = st.text(
    st.characters(blacklist_categories=("Cs", "Cc", "Z"), blacklist_characters="\ufeff"), min_size=1
)


@given(
    st.dictionaries(
        names,
        st.dictionaries(
            st.builds(
                TopicPartition, st.from_regex(r"[a-z._-]+", fullmatch=True), st.integers(0, 9)
            ),
            st.integers(0, 2**63 - 1),
            min_size=1,
        ),
        min_size=1,
    )
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[str, dict[TopicPartition, int]]
) -> None:
    path = file_of(tmp_path_factory.getbasetemp(), offsets_text(offsets))
    assert read_offsets(path, list(offsets)) == offsets
