"""The command `tenuto` as a whole."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature, signature
from keyword import iskeyword
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_group

from tenuto.cli.terminal import describe_error
from tenuto.errors import Invalid, TenutoError

# Every command and the file that has it under the same name, in the order of `--help`. Only the one that is named is
# loaded, so that none pays for the imports of another.
COMMANDS: Final = {
    "serve": "serving",
    "mcp": "serving",
    "worker": "serving",
    "chat": "chat",
    "sessions": "sessions",
    "attachments": "attachments",
    "import": "importing",
    "memories": "memories",
    "traces": "traces",
    "tasks": "tasks",
    "keys": "keys",
    "privacy": "privacy",
    "people": "people",
    "doctor": "doctor",
    "journal": "journal",
    "top": "top",
    "stats": "store",
    "usage": "analytics",
    "topics": "analytics",
    "sweep": "store",
    "index": "store",
    "copy": "store",
    "backup": "store",
}


class TenutoCommands(TyperGroup):
    """The commands, behind the one place where an error becomes a sentence and an exit code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    # typer keeps the types of contexts and commands, base classes of those it shows, to itself.
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load the module of the command that is named."""
        if cmd_name not in COMMANDS:
            return None
        # A command may have the name of a keyword.
        function = getattr(import_module(f"tenuto.cli.{COMMANDS[cmd_name]}"), cmd_name + "_" * iskeyword(cmd_name))
        part = typer.Typer(rich_markup_mode=None)
        if isinstance(function, typer.Typer):
            for each in function.registered_commands:
                each.callback = each.callback and _with_call_options(each.callback)
            part.add_typer(function, name=cmd_name)
        else:
            part.command(cmd_name)(_with_call_options(function))
        command = get_group(part).commands[cmd_name]
        for each in (command, *getattr(command, "commands", {}).values()):
            each.get_params = partial(_without_conversion, each.get_params)
        return command

    def get_params(self, ctx: Any) -> list[Any]:
        """The options before the command."""
        return _without_conversion(super().get_params, ctx)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except TenutoError as error:
            raise _exit_with_error(error) from None
        except OSError as error:
            # A reader that went away (`| head`) is no failure; typer ends quietly then.
            if error.errno == errno.EPIPE:
                raise
            raise _exit_with_error(Invalid(error.strerror or type(error).__name__)) from None


def _with_call_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it: with options for those fields of its `Call` that the parameter's type names."""
    own = dict(signature(command, eval_str=True).parameters)
    calls = [each for each in own.values() if isinstance(getattr(each.annotation, "__metadata__", [0])[0], tuple)]
    if not calls:
        return command
    (call,) = calls
    del own[call.name]
    make, (names,) = call.annotation.__origin__, call.annotation.__metadata__
    fields = signature(make, eval_str=True).parameters

    def run(**values: Any) -> None:
        command(make(**{name: values.pop(name) for name in names}), **values)

    options = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (*own.values(), *map(fields.__getitem__, names))]
    run.__signature__ = Signature(options)  # type: ignore[attr-defined]
    run.__doc__ = command.__doc__
    return run


def _without_conversion(get_params: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    """Parameters that take a value as it is when it has their type already: typer would load pydantic to see that."""
    params = get_params(ctx)
    for each in params:
        if hasattr(each, "get_runtime_param") and each.nargs == 1 and not each.multiple:
            each.get_runtime_param = partial(_Conversion, each.type_descriptor.annotation, each.get_runtime_param)
    return params


class _Conversion:
    def __init__(self, target: type, typers_own: Callable[[], Any]) -> None:
        self._target, self._typers_own = target, typers_own

    def coerce(self, value: Any, **place: Any) -> Any:
        is_converted = value is None or type(value) is self._target
        return value if is_converted else self._typers_own().coerce(value, **place)


def _exit_with_error(error: TenutoError) -> typer.Exit:
    """Say what went wrong, with its code, and end with 1."""
    typer.echo(describe_error(error), err=True)
    return typer.Exit(1)


# Tracebacks of typer's own kind print local variables, and those hold what users said.
program = typer.Typer(
    cls=TenutoCommands,
    name="tenuto",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Keep the conversation state of LLM agents.",
    epilog="Settings come from the environment (TENUTO_STORE, TENUTO_PRESET, ...): `tenuto doctor --settings`.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tenuto {version('tenuto')}")
        raise typer.Exit


@program.callback()
def _about(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Stands before every command."""
    # Here, since `--version` and `--help` end before it and do without.
    from tenuto.cli.running import log_to_stderr

    log_to_stderr()


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its number instead of a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    program(prog_name="tenuto")
