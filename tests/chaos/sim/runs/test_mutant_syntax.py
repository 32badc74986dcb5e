"""Replacing code in a syntax tree."""

import ast

import pytest

from chaos.sim.runs.mutants.syntax import substituted

SOURCE = """
def free(x):  # not this one
    return x + 1

class Log:
    @property
    def end(self):
        return self._end

    @end.setter
    def end(self, value):
        if value > 0 and value < 9 and self.open:
            self._end = value  # a comment
            self.tell()

    def reader(self):
        def end(x):
            return x + 1
        return end
"""


def changed(function: str, old: str, new: str) -> str:
    return ast.unparse(substituted(ast.parse(SOURCE), function, old, new))


def test_an_expression_is_replaced_in_the_named_function_alone() -> None:
    free, _, log = changed("free", "x + 1", "x").partition("class Log")
    assert ("return x\n" in free, "return x + 1" in log) == (True, True)
    free, _, log = changed("Log.reader.end", "x + 1", "x").partition("class Log")
    assert ("return x + 1" in free, "return x\n" in log) == (True, True)


def test_layout_and_comments_do_not_count() -> None:
    text = changed("Log.end", "self . _end=(value)\nself.tell( )", "self.tell()")
    assert "_end = value" not in text
    assert "self.tell()" in text


def test_an_operand_goes() -> None:
    assert "if value > 0 and self.open:" in changed("Log.end", "value < 9", "")
    once = ast.unparse(substituted(ast.parse("def f():\n    return a or b"), "f", "a", ""))
    assert once == "def f():\n    return b"


def test_statements_go_and_leave_a_block_behind() -> None:
    text = changed("Log.end", "self.tell()", "")
    assert "self._end = value" in text
    assert "tell" not in text
    emptied = changed("free", "return x + 1", "")
    assert "def free(x):\n    pass\n" in emptied


def test_one_statement_becomes_several() -> None:
    text = changed("Log.end", "self.tell()", "self.tell()\nself.tell()")
    assert text.count("self.tell()") == 2


@pytest.mark.parametrize(
    ("function", "old", "times"),
    [("free", "self.tell()", 0), ("none", "x + 1", 0), ("", "x + 1", 2), ("Log.end", "value", 3)],
)
def test_what_does_not_stand_there_once_is_an_error(function: str, old: str, times: int) -> None:
    with pytest.raises(ValueError, match=f"not once but {times} times"):
        changed(function, old, "new")
