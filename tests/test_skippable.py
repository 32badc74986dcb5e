"""Which tests a machine may skip."""

import textwrap

import pytest

from tests.support.skippable import main, skippable

USES = """
    import shutil
    import pytest

    needs_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat")

    @pytest.fixture
    def small_disk():
        mounted()

    def mounted():
        pytest.skip("nothing can be mounted here")

    def test_always(tmp_path):
        skip = [pytest.mark.processes]

    @pytest.mark.skipif(True, reason="never")
    def test_marked(): ...

    @needs_kcat
    def test_marked_by_name(): ...

    async def test_within():
        if shutil.which("java"):
            assert True

    def test_by_a_fixture(small_disk): ...

    def test_by_a_function():
        mounted()
"""


def test_what_skips_itself_or_looks_for_a_program_is_found() -> None:
    assert skippable(textwrap.dedent(USES)) == [
        "test_marked",
        "test_marked_by_name",
        "test_within",
        "test_by_a_fixture",
        "test_by_a_function",
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "pytestmark = [pytest.mark.processes, pytest.mark.skipif(True, reason='never')]",
        "yaml = pytest.importorskip('yaml')",
        "class TestAll:\n    def test_one(self):\n        pytest.skip('not here')",
        "if True:\n    pytest.skip('not here', allow_module_level=True)",
    ],
)
def test_a_file_is_taken_as_a_whole_if_its_tests_cannot_be_told_apart(statement: str) -> None:
    assert skippable(f"import pytest\n{statement}\ndef test_always(): ...") is None


def test_what_uses_a_function_or_fixture_of_another_file_that_skips_is_found() -> None:
    found = skippable(textwrap.dedent(USES), frozenset({"tmp_path"}))
    assert found is not None
    assert found[0] == "test_always"


def test_a_mark_that_skips_nothing_changes_nothing() -> None:
    assert skippable("pytestmark = pytest.mark.processes\ndef test_always(): ...") == []


def test_the_tests_that_need_other_programs_are_among_them() -> None:
    found = list(main())
    assert "tests/clients/test_groups.py::test_kcat_reads_in_a_group" in found
    assert "tests/acceptance/test_grpc_page.py::test_go" in found
    assert "tests/spark/test_source.py::test_a_plain_write_is_read_back" in found
    assert "tests/deploy/test_observability.py" in found
    assert "tests/clients/test_groups.py" not in found
