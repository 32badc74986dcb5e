"""A group of commands: how ``--help`` lists them, and options that many of them share."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from cli.client_properties import add_options
from cli.watch import add_watch


class CommandList(TyperGroup):
    """A group that shows the whole first sentence of each command's help.

    Click cuts it at the width of the terminal and ends it with three dots. The part that is cut
    often tells two commands apart.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            add_options(command)
            add_watch(cmd_name, command)
        return command

    # The types of the parameters are click's or, by its version, of typer's own copy of click.
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [
            (name, first_sentence(command.help or ""))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def first_sentence(text: str) -> str:
    """The text up to its first full stop, on one line."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(". ")[0].removesuffix(".")
