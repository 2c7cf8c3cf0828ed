"""`tenuto top`: how a running server is, redrawn every few seconds."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Final, TypeAlias

import msgspec
import typer

from tenuto.cli.options import STDIN, AsJson, flag, option
from tenuto.cli.terminal import moment, show_json, visible
from tenuto.errors import Unavailable
from tenuto.model.status import Level, ModelStatus, StatusView
from tenuto.settings import Settings, read_settings

_COLOURS: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}
_WORDS: Final = {Level.OK: "all is well", Level.WARNING: "needs attention", Level.ERROR: "something is wrong"}
_SIGNS: Final = {Level.OK: "+", Level.WARNING: "!", Level.ERROR: "x"}
_Draw: TypeAlias = Callable[[Sequence[str]], None]
_TIMEOUT: Final = timedelta(seconds=5)
_NAMES: Final = 10
# The second screen of a terminal, without a cursor; back home, and the rest of a line or of the screen cleared.
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def top(
    url: Annotated[str | None, option("URL", "Address of the server.  [default: this machine's]")] = None,
    key: Annotated[
        str | None, option("KEY", "API key with the role operator, or metrics_token; - reads standard input.")
    ] = None,
    every: Annotated[float, option("SECONDS", "Seconds between two readings.", min=0.1, max=3600)] = 2.0,
    once: Annotated[bool, flag("--once", "Print one reading and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a running server.

    Ctrl-C leaves. Without a terminal, one reading is printed.
    """
    address = url or _own_address(read_settings())
    secret = sys.stdin.readline().strip() if key == STDIN else key
    watch = not (once or as_json) and sys.stdout.isatty()
    try:
        asyncio.run(_watch(address, secret, every) if watch else _print_once(address, secret, as_json))
    except KeyboardInterrupt:
        raise typer.Exit from None


def _own_address(settings: Settings) -> str:
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 (compared, not bound)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


async def _print_once(url: str, key: str | None, as_json: bool) -> None:
    status = await _read_status(url, key)
    if as_json:
        show_json(msgspec.to_builtins(status))
    else:
        typer.echo("\n".join(frame(status, None, url)))


async def _read_status(url: str, key: str | None) -> StatusView:
    """A reading. Raises `Unavailable` with the address of a server that does not answer."""
    # Only this command pays for the HTTP client.
    from tenuto.client.connection import connect
    from tenuto.client.http import ClientPolicy, ConnectionLost

    policy = ClientPolicy(connect_timeout=_TIMEOUT, timeout=_TIMEOUT, retries=0)
    try:
        async with connect(url, key, tenant="local", policy=policy) as client:
            return await client.status()
    except ConnectionLost:
        raise Unavailable(
            f"server at {url}", "does not answer; start one with `tenuto serve`, or pass its address with --url"
        ) from None


async def _watch(url: str, key: str | None, every: float) -> None:
    """Redraw until interrupted. A server that goes away after the first reading is asked again."""
    before, status = None, await _read_status(url, key)
    with _drawing() as draw:
        while True:
            draw(frame(status, before, url))
            await asyncio.sleep(every)
            try:
                before, status = status, await _read_status(url, key)
            except Unavailable as error:
                draw([*frame(status, None, url), "", _fit(f"x {error}")])
                await asyncio.sleep(every)


@contextmanager
def _drawing() -> Iterator[_Draw]:
    """Draws frames over one another; on a terminal that cannot, below one another."""
    if os.environ.get("TERM", "dumb") == "dumb":
        yield lambda lines: typer.echo("\n".join([*lines, ""]))
        return
    typer.echo(_ENTER, nl=False)
    try:
        yield _redraw
    finally:
        typer.echo(_LEAVE, nl=False)


def _redraw(lines: Sequence[str]) -> None:
    height = shutil.get_terminal_size().lines
    typer.echo(_HOME + f"{_CLEAR_LINE}\n".join(lines[:height]) + _CLEAR_LINE + _CLEAR_BELOW, nl=False)


def frame(status: StatusView, before: StatusView | None, url: str) -> list[str]:
    """The lines of one reading; rates are those since the one before, or else since the start of the server."""
    head = f"tenuto {status.process.version} at {url}, up {_span(status.process.uptime_seconds)}: "
    lines = [(head + _WORDS[status.level], status.level), ("", None)]
    lines += [(f"{name:<{_NAMES}}{value}", None) for name, value in _facts(status, before)]
    for finding in status.findings:
        lines += [
            ("", None),
            (f"{_SIGNS[finding.level]} {finding.message}", finding.level),
            (f"  {finding.advice}", None),
        ]
    return [_style(_fit(line), level) for line, level in lines]


def _fit(line: str) -> str:
    """One line of the terminal, whatever the server sent."""
    return visible(line)[: shutil.get_terminal_size((120, 50)).columns]


def _style(line: str, level: Level | None) -> str:
    if level is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return line
    return typer.style(line, fg=_COLOURS[level], bold=True)


def _facts(status: StatusView, before: StatusView | None) -> Iterator[tuple[str, str]]:
    store, turns, jobs, tasks = status.store, status.turns, status.jobs, status.tasks
    answers = "does not answer" if store.ping_ms is None else f"answers in {store.ping_ms:g} ms"
    yield (
        "turns",
        f"{turns.live:,} running, {_turn_rate(status, before)}, {turns.answered:,} answered, {turns.failed:,} failed",
    )
    for model in status.models:
        yield "model", _model(model)
    yield "sessions", _sessions(status, before)
    yield "store", f"{store.version or store.backend} {answers}, {store.address}"
    if status.breaker is not None:
        yield "breaker", f"{status.breaker.state}, {status.breaker.rejected:,} calls rejected"
    if status.journal is not None:
        yield "journal", _journal(status)
    if status.cache is not None:
        yield "cache", _cache(status)
    yield "upkeep", f"{jobs.running:,} running, {jobs.waiting:,} waiting, {jobs.done:,} done, {jobs.failed:,} failed"
    yield "tasks", tasks.status if tasks.error is None else f"{tasks.status}: {tasks.error}"
    process = status.process
    used = f"{_size(process.memory_bytes)} memory, {_span(process.cpu_seconds)} processor time"
    yield "process", used if process.workers == 1 else f"{used}, {process.workers} workers"


def _model(model: ModelStatus) -> str:
    total = model.answered + model.failed
    if not total:
        return f"{model.name} has not been called yet"
    how = "fails" if model.failed_in_a_row else "answers"
    took = f" in {model.p50_ms:,.0f} ms, 95 % within {model.p95_ms:,.0f} ms" if model.p50_ms is not None else ""
    failure = model.last_failure
    last = f", the last for {failure.reason.replace('_', ' ')}" if failure is not None else ""
    return f"{model.name} {how}{took}, {model.failed:,} of {total:,} calls failed{last}"


def _turn_rate(status: StatusView, before: StatusView | None) -> str:
    total = status.turns.answered + status.turns.failed
    then = before.turns.answered + before.turns.failed if before is not None else 0
    return _rate(status, before, total - then, status.turns.per_minute)


def _sessions(status: StatusView, before: StatusView | None) -> str:
    now = status.sessions
    new_sessions = now.created - (before.sessions.created if before is not None else 0)
    rate = _rate(status, before, new_sessions, now.created_per_minute)
    return f"{rate}, {now.created:,} created, {now.deleted:,} deleted, {now.expired:,} expired"


def _rate(status: StatusView, before: StatusView | None, count: int, since_start: float) -> str:
    """What was added since the reading before; a server that was started anew in between has no such reading."""
    seconds = status.process.uptime_seconds - before.process.uptime_seconds if before is not None else 0.0
    return f"{60 * count / seconds:,.1f}/min" if seconds > 0 else f"{since_start:,.1f}/min since the start"


def _journal(status: StatusView) -> str:
    assert status.journal is not None
    journal, oldest = status.journal, ""
    if journal.oldest_seconds is not None:
        oldest = f" for up to {_span(journal.oldest_seconds)}"
    counts = f"{journal.quarantined:,} quarantined, {journal.replayed:,} delivered later, {journal.refused:,} refused"
    outage_note = f", away since {moment(journal.since)}" if journal.since is not None else ""
    return f"{journal.waiting:,} waiting{oldest}, {counts}{outage_note}"


def _cache(status: StatusView) -> str:
    assert status.cache is not None
    cache = status.cache
    hits = "no reads yet" if cache.hit_rate is None else f"{100 * cache.hit_rate:.1f} % hits"
    used = f"{cache.sessions:,} of {cache.max_sessions:,} sessions, {_size(cache.bytes)} of {_size(cache.max_bytes)}"
    return f"{hits}, {used}"


def _span(seconds: float) -> str:
    """`42s`, `3m 10s`, `5h 2m`, `12d 3h`."""
    units = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
    left, parts = int(seconds), list[str]()
    for unit, size in units:
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size}{unit}")
            left %= size
    return " ".join(parts[:2])


def _size(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1_000_000:,.1f} MB"
