"""`tenuto chat`: talk to an assistant in the terminal, or ask it one thing."""

from __future__ import annotations

import sys
from typing import Annotated

from tenuto.cli.options import argument, flag, option, session_option
from tenuto.cli.running import UserStore, for_one_person, make_folder, tell_store
from tenuto.errors import Invalid
from tenuto.model.values import check_id
from tenuto.settings import read_settings


def _complete_assistant(incomplete: str) -> list[str]:
    from tenuto.cli import completion

    return completion.complete_assistant(incomplete)


def chat(
    call: UserStore,
    message: Annotated[
        str | None,
        argument("MESSAGE", "Answer this message and exit; by default read standard input, or talk at a terminal."),
    ] = None,
    assistant: Annotated[
        str | None,
        option(
            "NAME",
            "Assistant that answers; by default the session's own, or the default one.",
            autocompletion=_complete_assistant,
        ),
    ] = None,
    persona: Annotated[str | None, option("ID", "Character of the assistant that answers.")] = None,
    session: Annotated[str | None, session_option("Continue this session; by default start a new one.")] = None,
    model: Annotated[str | None, option("NAME", "Use this model instead of TENUTO_MODEL.")] = None,
    no_stream: Annotated[bool, flag("--no-stream", "Print each answer when it is complete.")] = False,
    as_json: Annotated[bool, flag("--json", "Print each answer as a JSON document.")] = False,
) -> None:
    """Talk to an assistant.

    Type /help for the commands. Ctrl-C stops an answer, Ctrl-D exits.
    """
    if session is not None:
        check_id(session, "the session id")
    settings = for_one_person(read_settings(store=call.store, model=model))
    text = message if message is not None else _read_stdin()
    make_folder(settings)
    if call.store is None:
        tell_store(settings)
    # Only this command pays for assistants, tokenizer and models.
    from tenuto.cli.conversation import ChatOptions, TerminalChat, converse

    options = ChatOptions(
        assistant=assistant, persona=persona, streams=not no_stream, as_json=as_json, store=call.store
    )
    converse(settings, lambda aside: TerminalChat(aside, call.scope, options, session), text)


def _read_stdin() -> str | None:
    """What comes on standard input, read to its end; `None` at an interactive terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError:
        raise Invalid("standard input is not UTF-8 text") from None
