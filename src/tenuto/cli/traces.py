"""`tenuto traces`: what turns were like."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from tenuto.app import Tenuto
from tenuto.cli.options import argument, flag, limit_option, option, session_option
from tenuto.cli.running import UserCall
from tenuto.cli.short_ids import whole_session_id, whole_trace_id
from tenuto.cli.terminal import age, show_json, show_table
from tenuto.cli.trace_view import outcome, show_trace
from tenuto.errors import SessionNotFound, TraceNotFound
from tenuto.model import Scope
from tenuto.model.prompt import PartText
from tenuto.model.turn import TRACES_KEPT, Trace
from tenuto.model.values import check_id
from tenuto.ports import utc_now
from tenuto.sessions.traces import find_trace, latest_traces

traces = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List and show turns: what the model saw, and why."
)


@traces.command("list")
def list_traces(
    call: UserCall,
    session: Annotated[str | None, session_option("Show only this session; by default those changed last.")] = None,
    limit: Annotated[int, limit_option(TRACES_KEPT)] = 20,
) -> None:
    """List turns, newest first."""
    if session is not None:
        check_id(session, "the session id")
    latest = call.read(lambda app: _load_traces(app, call.scope, session, limit))
    if call.as_json:
        # With the assistants behind it, more to load than a table needs.
        from tenuto.chat.views import TraceView

        show_json({"traces": list(map(TraceView.of, latest))})
    elif not latest:
        typer.echo("No traces.")
    else:
        now = utc_now()
        columns = ("SESSION", "TURN", "ASSISTANT", "MODEL", "OUTCOME", "TOKENS", "MS", "AGE", "REQUEST")
        numbers = ("TURN", "TOKENS", "MS", "AGE")
        show_table(
            columns, [_trace_row(trace, now) for trace in latest], flexible="REQUEST", numbers=numbers, ids="SESSION"
        )


async def _load_traces(app: Tenuto, scope: Scope, session_id: str | None, limit: int) -> tuple[Trace, ...]:
    if session_id is None:
        return (await latest_traces(app.store.traces, app.sessions, scope, limit)).traces
    return await app.store.traces.traces(scope, await whole_session_id(app, scope, session_id), limit)


def _trace_row(trace: Trace, now: datetime) -> tuple[str, ...]:
    return (
        trace.session_id,
        str(trace.number),
        trace.assistant,
        trace.model,
        outcome(trace),
        f"{trace.input_tokens + trace.output_tokens:,}",
        f"{sum(trace.steps.values()):,.1f}",
        age(trace.began_at, now),
        trace.request,
    )


@traces.command("show")
def show_trace_command(
    call: UserCall,
    name: Annotated[str, argument("ID", "ID of the trace, or of its session.")],
    turn: Annotated[int | None, option("N", "Turn of the session; by default the newest.", min=1)] = None,
    text: Annotated[
        bool, flag("--text", "Show the text of each part of the prompt, as far as it is still stored.")
    ] = False,
) -> None:
    """Show one turn: steps, tools and what the model saw."""
    check_id(name, "the id")

    async def load(app: Tenuto) -> tuple[Trace, tuple[PartText, ...] | None]:
        trace = await _load_trace(app, call.scope, name, turn)
        return trace, await (await app.chat()).prompt_texts(call.scope, trace, show_assistant=True) if text else None

    trace, texts = call.read(load)
    if call.as_json:
        # See list_traces.
        from tenuto.chat.views import TraceView

        show_json(TraceView.of(trace, texts))
    else:
        show_trace(trace, texts)


async def _load_trace(app: Tenuto, scope: Scope, name: str, turn: int | None) -> Trace:
    """The trace of that name; or of the session of that name the one of this turn, or the newest."""
    if turn is None:
        try:
            return await find_trace(app.store.traces, scope, name)
        except TraceNotFound:
            pass
    session_id = await whole_session_id(app, scope, name)
    try:
        traces = await app.store.traces.traces(scope, session_id, 1, before=None if turn is None else turn + 1)
    except SessionNotFound:
        if turn is not None:
            raise TraceNotFound from None
        return await find_trace(app.store.traces, scope, await whole_trace_id(app, scope, name))
    if not traces or (turn is not None and traces[0].number != turn):
        raise TraceNotFound
    return traces[0]
