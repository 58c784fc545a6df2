"""The classes of commands and groups of commands: what their help shows, and a group that is a command as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup


def _flags_alone(params: list[Any]) -> list[Any]:
    """Changes `params` so that help shows no type for flags, which take no value; returns them."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command with help that shows no type for flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns its arguments and options."""
        return _flags_alone(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A group of commands with help that shows no type for flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the options before a command."""
        return _flags_alone(super().get_params(ctx))


class TakingGroup(CommandGroup):
    """A group that is the command `take` if a file or an option stands in place of the name of a command."""

    default: ClassVar[str] = "take"

    def list_commands(self, ctx: Any) -> list[str]:
        """Lists the commands by the names that people give: the default one has none."""
        return [name for name in super().list_commands(ctx) if name != self.default]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the default command's arguments and options, then the other commands, and the examples of all."""
        command = self.commands[self.default]
        command.epilog = None
        command.format_help(command.context_class(command, info_name="", parent=ctx), formatter)
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses `args`, with the name of the default command in front if it is meant."""
        first = args[0] if args else ""
        is_option = first.startswith("-") and first != "--help"
        is_file = first not in self.commands and (first.endswith(".json") or Path(first).is_file())
        return super().parse_args(ctx, [self.default, *args] if is_option or is_file else args)
