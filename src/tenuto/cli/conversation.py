"""A conversation at the terminal: one question after the other, answers as they come, commands between them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Final

import typer
from msgspec.structs import replace

from tenuto.assistants import in_language
from tenuto.chat import ChatRequest, Reply, ReplyFinished, ToolFinished, ToolStarted, TurnStarted
from tenuto.chat.turn import resolve_assistant
from tenuto.chat.turn_values import ActiveAssistant
from tenuto.chat.views import ReplyView
from tenuto.cli.app_thread import BackgroundApp, open_in_background
from tenuto.cli.keyboard import Keyboard
from tenuto.cli.placeholders import Marks, PlaceholderStream, count_redacted, last_turn_messages
from tenuto.cli.running import command_line
from tenuto.cli.sessions import show_sessions
from tenuto.cli.short_ids import whole_session_id
from tenuto.cli.terminal import (
    describe_error,
    moment,
    operator_name,
    pluralize,
    show_json,
    tally,
    visible,
    without_warnings,
)
from tenuto.cli.trace_view import show_manifest, show_trace
from tenuto.errors import (
    AssistantFailed,
    AssistantNotFound,
    FailureReason,
    Invalid,
    ModelFailed,
    SessionNotFound,
    TenutoError,
    Unavailable,
)
from tenuto.llm import OFFLINE, model_names
from tenuto.llm.reach import model_addresses, why_unreachable
from tenuto.model import Changes, Page, Role, Scope, Session, SessionPage, SessionQuery
from tenuto.model.generation import StepChanged, TextDelta
from tenuto.model.policy import OnMissing
from tenuto.model.prompt import Language
from tenuto.model.turn import Trace
from tenuto.model.values import Value
from tenuto.sessions.traces import find_trace
from tenuto.settings import Settings
from tenuto.upkeep import LAST_WORK
from tenuto.wiring.models import home_provider

_PROMPT: Final = "> "
# What is shown of a session that goes on, and what of it can be recalled with the up key.
_REPEATED_MESSAGES: Final = 2
_HISTORY_LENGTH: Final = 100
_LIST_LENGTH: Final = 20
# How long the end of a chat waits for vectors, loading the embedder included, and when it says so.
_EMBED_WITHIN: Final = timedelta(minutes=1)
_SILENCE: Final = timedelta(seconds=3)
_EMBEDDING: Final = "(adding vectors to what was remembered; Ctrl-C leaves them to a later process)"
# Their warnings are about failures that an answer, its error or a step that is shown names.
_TOLD_BY_ANSWERS: Final = ("tenuto.llm", "tenuto.upkeep", "tenuto.tasks.step_runner")
_REMARKS: Final = {
    "store": "the store does not answer, and this turn is not stored",
    "journal": "the store does not answer; the journal keeps this turn until it does",
    "fallback_model": "answered by the fallback model",
    "tools": "a tool failed",
    "lookup": "nothing was looked up for this answer",
    "detector": "the external detector of private data does not answer; the built-in one alone ran",
    "embedder": "the embedder does not answer; words alone decided whether earlier messages matter",
    "cut": "the model saw a part of a message or of a tool's output; the trace says of which",
    "history": "the session keeps the newest of the messages that were sent",
    "recall": "memories were searched by words alone, or not at all",
}


class ChatOptions(Value, frozen=True, kw_only=True):
    """How the talk is held."""

    assistant: str | None = None
    persona: str | None = None
    streams: bool = True
    as_json: bool = False
    store: str | None = None


def converse(settings: Settings, begin: Callable[[BackgroundApp], TerminalChat], text: str | None) -> None:
    """Answer the given text and end; without one, talk until the user leaves.

    Raises:
        ModelFailed: the only model is at an address that takes no connection. Its client would find that out as well,
            but takes seconds to load, tries several times, and does not name the address.
    """
    if len(model_names(settings.model)) == 1 and (cut_off := _find_cut_off(settings, settings.model)) is not None:
        raise cut_off
    with without_warnings(*_TOLD_BY_ANSWERS), open_in_background(settings) as background:
        talk = begin(background)
        talk.prepare()
        if text is not None:
            talk.answer_once(text)
        else:
            talk.go_on()
        talk.remember()


def _find_cut_off(settings: Settings, model: str) -> ModelFailed | None:
    """The failure of a model, or of a chain, of which an address takes no connection."""
    for address in model_addresses([model], home=home_provider(settings), base_url=settings.model_base_url):
        if (why := asyncio.run(why_unreachable(address))) is not None:
            return ModelFailed(model, f"does not answer: {why}", FailureReason.UNREACHABLE)
    return None


class TerminalChat:
    """One user's talk with one assistant, on the store itself."""

    def __init__(self, background: BackgroundApp, scope: Scope, options: ChatOptions, session_id: str | None) -> None:
        self._background = background
        self._app = background.app
        self._scope = scope
        self._options = options
        self._session_id = session_id
        self._last: Reply | None = None
        self._last_list: tuple[Session, ...] = ()
        self._commands: Mapping[str, tuple[Callable[[str], None], str]] = {
            "reset": (self._reset, "clear the conversation and keep the session"),
            "title": (self._title, "show the title, or set it to the words that follow"),
            "why": (self._why, "show what the model saw for the last answer: the token budget and every part"),
            "trace": (self._trace, "show everything about the last turn: tools, steps, context"),
            "retry": (self._retry, "answer the last question again"),
            "sessions": (self._sessions, "list your sessions"),
            "open": (self._open, "switch to another session, by its number in that list or its id"),
            "new": (self._new, "start a new session"),
            "link": (self._link, "show a code that links you with yourself elsewhere, or use the code that follows"),
            "unlink": (self._unlink, "part this user from the others that you are linked with"),
            "help": (self._help, "this list"),
            "quit": (self._quit, "leave, like Ctrl-D"),
        }

    def prepare(self) -> None:
        """Look whether assistant, character and session are there.

        Raises:
            TenutoError: one of them is not, or the assistant takes no turns.
        """
        self._marks = Marks([own.name for own in self._app.redactor.policies.of(self._scope).patterns])
        session = self._background.run(self._find_session)
        self._choose_assistant(session)
        self._going_on = session is not None

    async def _find_session(self) -> Session | None:
        if self._session_id is None:
            return None
        self._session_id = await whole_session_id(self._app, self._scope, self._session_id)
        try:
            return await self._app.sessions.get(self._scope, self._session_id)
        except SessionNotFound:
            assistant = self._background.chat.assistants.find(self._options.assistant)
            if assistant.policies.sessions.on_missing is OnMissing.ERROR:
                raise
            return None

    def _choose_assistant(self, session: Session | None) -> None:
        """Find out who answers."""
        assistants, assistant = self._background.chat.assistants, self._options.assistant
        if assistant is not None and assistant not in assistants.names and self._app.settings.assistants is None:
            names = ", ".join([each.name for each in assistants])
            raise AssistantNotFound("assistant", f"{names}; TENUTO_ASSISTANTS, the folder of your own, is not set")
        last = ActiveAssistant.of(session)
        self._assistant, self._persona = resolve_assistant(assistants, assistant, self._options.persona, last)
        self._assistant.check_installed()

    # One question

    def answer_once(self, text: str) -> None:
        """Answer and end; an error is the command's."""
        self._answer(self._request(text=text))
        if self._session_id is not None and sys.stderr.isatty() and not self._options.as_json:
            typer.secho(f"(continue with: {self._again()})", dim=True, err=True)

    def _request(self, *, text: str = "", regenerate: bool = False) -> ChatRequest:
        return ChatRequest(
            text=text,
            session_id=self._session_id,
            assistant=self._options.assistant if self._session_id is not None else self._assistant.name,
            persona=self._options.persona,
            regenerate=regenerate,
        )

    def _answer(self, request: ChatRequest) -> None:
        """Have the turn taken and show the answer, whole or word by word."""
        printer = _AnswerPrinter(self._marks, quiet=self._options.as_json or not self._options.streams)
        try:
            reply = self._background.run(lambda: self._stream_reply(request, printer))
        except (TenutoError, KeyboardInterrupt) as error:
            printer.end()
            if isinstance(error, ModelFailed) and error.reason is FailureReason.UNREACHABLE:
                # The failure names the model; a person at a terminal wants to know the address, too.
                raise _find_cut_off(self._app.settings, error.model) or error from None
            if isinstance(error, AssistantFailed):
                self._show_exceptions(error)
            raise
        self._last = reply
        if self._options.as_json:
            show_json(ReplyView.of(reply))
        else:
            printer.finish(reply.text)
        exceptions = self._background.run(lambda: self._tool_exceptions(reply)) if "tools" in reply.degraded else []
        for line in remarks(reply.degraded, fallback_model=self._failed_models(), tools=exceptions):
            typer.secho(line, fg="yellow", err=True)
        if exceptions:
            self._point_to_trace(reply.trace_id)

    def _show_exceptions(self, error: AssistantFailed) -> None:
        """What code of the assistant raised, as the trace of the turn has it."""
        trace_id = error.ids.get("trace_id", "")
        trace = self._background.run(lambda: self._load_trace(trace_id))
        if trace is not None:
            typer.secho(visible(f"{trace.assistant} raised {trace.error_message}"), fg="red", err=True)
            self._point_to_trace(trace_id)

    async def _tool_exceptions(self, reply: Reply) -> list[str]:
        """What each tool of the turn raised, as the trace of the turn has it."""
        trace = await self._load_trace(reply.trace_id)
        return [f"{run.name} raised {run.exception}" for run in trace.tools if run.exception] if trace else []

    async def _load_trace(self, trace_id: str) -> Trace | None:
        """The trace; `None` if it could not be stored."""
        try:
            return await find_trace(self._app.store.traces, self._scope, trace_id)
        except TenutoError:
            return None

    def _point_to_trace(self, trace_id: str) -> None:
        command = command_line(self._scope, self._options.store, "traces", "show", trace_id)
        typer.secho(f"(trace: {command})", dim=True, err=True)

    def _failed_models(self) -> list[str]:
        """Why each model that failed last did so."""
        statuses = [calls.status for calls in self._background.chat.model_calls]
        return [one.last_failure.message for one in statuses if one.failed_in_a_row and one.last_failure is not None]

    async def _stream_reply(self, request: ChatRequest, printer: _AnswerPrinter) -> Reply:
        # Cancelled or not, the turn must have ended before we go on, and a generator ends when it is closed.
        async with aclosing(self._background.chat.stream(self._scope, request)) as events:  # type: ignore[type-var]
            async for event in events:
                match event:
                    case TurnStarted(session_id=session_id):
                        self._session_id = session_id
                    case ReplyFinished(reply=reply):
                        self._session_id = reply.session_id
                        return reply
                    case TextDelta() | ToolStarted() | ToolFinished() | StepChanged():
                        printer.show(event)
        raise AssertionError("a turn ends with its answer or with an error")

    def remember(self) -> None:
        """Wait for what is captured of the talk, and for its vectors; Ctrl-C leaves them to a later process."""
        if self._last is not None and self._app.settings.memories:
            with suppress(KeyboardInterrupt, Invalid, Unavailable):
                self._background.run(self._embed_memories)

    async def _embed_memories(self) -> None:
        await self._app.upkeep.drain(LAST_WORK)
        waits = asyncio.get_running_loop().call_later(_SILENCE.total_seconds(), _print_aside, _EMBEDDING)
        try:
            lacking = await (await self._app.memories()).embed_remaining(self._scope, _EMBED_WITHIN)
        finally:
            waits.cancel()
        if lacking:
            _print_aside(f"({pluralize(lacking, 'memory')} without a vector: a running server adds them)")

    # Many questions

    def go_on(self) -> None:
        """Read and answer until the user leaves."""
        self._keyboard = Keyboard(_PROMPT, [f"/{name}" for name in self._commands])
        self._print_note(self._introduction())
        self._background.run(self._show_news)
        if self._going_on:
            self._background.run(self._show_recent)
        while (line := self._keyboard.line()) is not None:
            try:
                self._do(line)
            except KeyboardInterrupt:
                self._print_note("(stopped; your message is kept, and /retry answers it)")
            except EOFError:
                break
            except TenutoError as error:
                typer.secho(describe_error(error), fg="red", err=True)
        if self._session_id is not None:
            self._print_note(f"(continue later with: {self._again()})")

    def _introduction(self) -> str:
        """Who answers, in one line."""
        names = self._persona.names if self._persona is not None else self._assistant.titles
        who = visible(in_language(names, Language.ENGLISH) or self._assistant.name)
        model = self._background.chat.model_of(self._assistant).name
        if model == OFFLINE:
            how = "the offline model: no key, no network (--model openai:gpt-5.4-mini or TENUTO_MODEL for another)"
        else:
            how = visible(model)
        return f"{who} answers, with {how}. /help lists commands, Ctrl-D leaves."

    async def _show_recent(self) -> None:
        """Show how the talk stood, and let earlier words be recalled."""
        assert self._session_id is not None
        page = await self._app.sessions.messages(self._scope, self._session_id, Page(limit=_HISTORY_LENGTH))
        talk = [message for message in page.messages if message.role in (Role.USER, Role.ASSISTANT) and message.text]
        for message in talk:
            if message.role is Role.USER:
                self._keyboard.remember(message.text)
        self._print_note(
            f"({visible(page.session.title) or page.session.id}: {pluralize(page.session.messages, 'message')})"
        )
        for message in talk[-_REPEATED_MESSAGES:]:
            mark = _PROMPT if message.role is Role.USER else ""
            typer.echo(self._marks.paint(mark + message.text, dim=True), err=self._options.as_json)

    def _do(self, line: str) -> None:
        """A command, or words: what begins with a slash and one word of letters is a command, `//` is a slash."""
        name, _, rest = line.partition(" ")
        if not name.startswith("/") or not name[1:].isalpha():
            self._answer(self._request(text=line[1:] if line.startswith("//") else line))
        elif name[1:] in self._commands:
            self._commands[name[1:]][0](rest.strip())
        else:
            raise Invalid("unknown command; /help lists the commands")

    # Commands

    def _reset(self, _: str) -> None:
        session_id = self._require_session()
        self._background.run(lambda: self._app.sessions.reset(self._scope, session_id))
        self._last = None
        self._print_note("(cleared; the session is empty)")

    def _title(self, title: str) -> None:
        session_id = self._require_session()
        if title:
            changes = Changes(title=title)
            session = self._background.run(lambda: self._app.sessions.patch(self._scope, session_id, changes))
        else:
            session = self._background.run(lambda: self._app.sessions.get(self._scope, session_id))
        self._print_note(visible(session.title) or "(no title)")

    def _why(self, _: str) -> None:
        session_id = self._require_session()
        traces = self._background.run(lambda: self._app.store.traces.traces(self._scope, session_id, _LIST_LENGTH))
        last_answer = next((trace for trace in traces if trace.error is None), None)
        if self._last is not None:
            show_manifest(self._last.manifest)
        elif last_answer is not None:
            show_manifest(last_answer.manifest)
        else:
            raise Invalid("there is no answer yet")
        self._show_redactions(last_answer)

    def _show_redactions(self, trace: Trace | None) -> None:
        """How many private values what is stored of the last turn does without: of its messages, and of its trace."""
        session_id = self._require_session()
        page = self._background.run(
            lambda: self._app.sessions.messages(self._scope, session_id, Page(limit=_LIST_LENGTH))
        )
        values = {
            "messages": count_redacted(last_turn_messages(page.messages)),
            "trace": trace.redacted if trace else {},
        }
        for where, counts in values.items():
            if counts:
                many = pluralize(sum(counts.values()), "private value")
                self._print_note(f"({many} redacted in the stored {where}: {visible(tally(counts))})")

    def _trace(self, _: str) -> None:
        session_id = self._require_session()
        traces = self._background.run(lambda: self._app.store.traces.traces(self._scope, session_id, 1))
        if not traces:
            raise Invalid("this session has no traces")
        show_trace(traces[0])

    def _retry(self, _: str) -> None:
        self._require_session()
        self._answer(self._request(regenerate=True))

    def _sessions(self, _: str) -> None:
        page = self._list()
        show_sessions(page, numbered=True)
        if page.cursor is not None:
            self._print_note(
                f"(the {pluralize(_LIST_LENGTH, 'session')} changed most recently; "
                "/open also takes the id of any other)"
            )

    def _list(self) -> SessionPage:
        query = SessionQuery(limit=_LIST_LENGTH)
        page = self._background.run(lambda: self._app.sessions.list(self._scope, query))
        self._last_list = page.sessions
        return page

    def _open(self, which: str) -> None:
        if not which:
            raise Invalid("name a session: its number in the list of /sessions, or its id")
        chosen_id = self._session_id_for(which)
        session_id = self._background.run(lambda: whole_session_id(self._app, self._scope, chosen_id))
        session = self._background.run(lambda: self._app.sessions.get(self._scope, session_id))
        # A name given for this session does not apply to the other one, which has its own.
        self._options = replace(self._options, assistant=None, persona=None)
        self._session_id, self._last = session.id, None
        self._choose_assistant(session)
        self._print_note(self._introduction())
        self._background.run(self._show_recent)

    def _session_id_for(self, which: str) -> str:
        """A session by its number in the list as it was shown, or else by its id."""
        if not which.isdecimal() or len(which) > 3:
            return which
        sessions = self._last_list or self._list().sessions
        return sessions[int(which) - 1].id if 0 < int(which) <= len(sessions) else which

    def _new(self, _: str) -> None:
        self._session_id, self._last = None, None
        self._print_note("(your next message starts a new session)")

    def _link(self, code: str) -> None:
        people, scope = self._app.people, self._scope
        if not code:
            shown = self._background.run(lambda: people.show_code(scope))
            self._print_note(f"{shown.text} links you with the user who enters it, until {moment(shown.expires_at)}.")
            return
        person = self._background.run(lambda: people.use_code(scope, code, by=operator_name()))
        self._print_note(f"Linked: you are {', '.join(map(visible, person.users))}.")

    def _unlink(self, _: str) -> None:
        self._background.run(
            lambda: self._app.people.unlink(self._scope, by=operator_name(), informed=self._scope.user)
        )
        self._print_note("Parted from the others. What was said as this user stays with it.")

    async def _show_news(self) -> None:
        """Say what was linked or parted at another door."""
        news = await self._app.people.take_news(self._scope)
        if news is not None:
            self._print_note(f"(this user was {news} with another one elsewhere; `tenuto people show` says with whom)")

    def _help(self, _: str) -> None:
        width = max(map(len, self._commands))
        for name, (_do, about) in self._commands.items():
            typer.echo(f"/{name:<{width}}  {about}")
        typer.echo("Anything else goes to the assistant; type // to send a message that begins with a slash.")

    def _quit(self, _: str) -> None:
        raise EOFError

    def _require_session(self) -> str:
        if self._session_id is None:
            raise Invalid("nothing has been said yet")
        return self._session_id

    def _again(self) -> str:
        """The command that goes on with this session, as a shell reads it; a password is to be put in by hand."""
        flags = {"--session": self._session_id, "--persona": self._options.persona}
        options = [word for option, value in flags.items() if value for word in (option, value)]
        return command_line(self._scope, self._options.store, "chat", *options)

    def _print_note(self, text: str) -> None:
        """Print a note in a style of its own; with JSON, standard output stays free of notes."""
        typer.secho(text, dim=True, err=self._options.as_json)


def _print_aside(text: str) -> None:
    """Print what belongs to no answer."""
    typer.secho(text, dim=True, err=True)


class _AnswerPrinter:
    """Prints an answer as it comes."""

    def __init__(self, marks: Marks, *, quiet: bool) -> None:
        self._marks = marks
        self._stream = PlaceholderStream(marks)
        self._quiet = quiet
        self._printed_text = ""

    def show(self, event: TextDelta | ToolStarted | ToolFinished | StepChanged) -> None:
        """Some words, or a tool or a step at work."""
        if self._quiet:
            return
        match event:
            case TextDelta(text=text):
                self._printed_text += text
                typer.echo(self._stream.feed(text), nl=False)
            case ToolStarted():
                self.end()
            case ToolFinished(name=name, milliseconds=taken, error=failed):
                _print_work(name, taken, failed)
            case StepChanged(state="started"):
                pass
            case StepChanged(id=step, titles=titles, milliseconds=taken, error=failed):
                _print_work(in_language(titles, Language.ENGLISH) or step, taken, failed)

    def finish(self, answer: str) -> None:
        """The rest of the answer; all of it where the assistant has put other words in place of those streamed."""
        if answer.startswith(self._printed_text):
            typer.echo(self._stream.feed(answer.removeprefix(self._printed_text)) + self._stream.flush())
        else:
            self.end()
            typer.echo(self._marks.paint(answer))
        self._printed_text = ""

    def end(self) -> None:
        """Begin a new line where one is open."""
        if self._printed_text:
            typer.echo(self._stream.flush())
        self._printed_text = ""


def _print_work(name: str, milliseconds: float | None, failure: str | None) -> None:
    """What a tool or a step did, for those who watch."""
    if sys.stderr.isatty():
        how = f" failed: {failure}" if failure else "" if milliseconds is None else f" {milliseconds:,.0f} ms"
        typer.secho(visible(f"[{name}{how}]"), dim=True, err=True)


def remarks(parts: Sequence[str], **causes: Sequence[str]) -> list[str]:
    """What an answer had to do without, in sentences, with the causes that are known; an assistant may name more."""
    return [
        f"(degraded: {_REMARKS.get(what, f'answered without {visible(what)}')}"
        + (f": {visible(cause)})" if (cause := "; ".join(causes.get(what, ()))) else ")")
        for what in parts
    ]
