"""`tenuto.connect`: the same program on an installation in this process and on a running server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from textwrap import indent
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

import tenuto
from tenuto.access import ApiKeys
from tenuto.app import Tenuto
from tenuto.chat.request import ChatRequest, ReplyFinished, TurnStarted
from tenuto.client import AccessRefused, TenutoApi
from tenuto.client.connection import TenutoClient
from tenuto.client.http import ClientPolicy
from tenuto.errors import (
    IdempotencyKeyReused,
    Invalid,
    SessionBusy,
    SessionNotFound,
    TooLarge,
    Unavailable,
    VersionConflict,
)
from tenuto.llm import Hang, Say, ScriptedModel
from tenuto.model import Changes, Draft, FinishTurn, Message, NewSession, Page, Role, Truncation, TurnState, Usage
from tenuto.model.generation import TextDelta
from tenuto.model.memory import MemoryKind, MemoryQuery
from tenuto.model.task import NewTask
from tenuto.ports import utc_now
from tenuto.sessions import AppendRequest, TurnRequest
from tenuto.sessions.transfer import parse_export
from tests.chats import patient
from tests.journeys.http_service import BASE, http_service, playing
from tests.journeys.server_process import ServerProcess, running_server
from tests.servers.loopback import serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, str, str]]:
    """A server process, a key of the tenant acme, and one of its agent `reader`."""
    store = tmp_path_factory.mktemp("client") / "sessions.db"

    async def make_keys() -> tuple[str, str]:
        async with tenuto.open(f"sqlite:///{store}") as app:
            keys = ApiKeys(store=app.store.state, clock=utc_now)
            return (await keys.create(tenant="acme"))[1], (await keys.create(tenant="acme", agent="reader"))[1]

    # In a thread: this one may have an event loop already.
    with ThreadPoolExecutor(1) as pool:
        keys = pool.submit(lambda: asyncio.run(make_keys())).result()
    with running_server(store, TENUTO_BUSY_WAIT="0.05", TENUTO_MAX_MESSAGE_BYTES="20000") as server:
        yield server, *keys


@pytest.fixture
async def client(server: tuple[ServerProcess, str, str]) -> AsyncIterator[TenutoClient]:
    running_server, key, _ = server
    async with tenuto.connect(str(running_server.http.base_url), key) as client:
        yield client


@pytest.fixture(params=["in process", "over HTTP"])
async def installation(request: pytest.FixtureRequest, client: TenutoClient) -> AsyncIterator[Tenuto | TenutoClient]:
    if request.param == "over HTTP":
        yield client
        return
    async with tenuto.open("memory://", busy_wait=timedelta(seconds=0.05), max_message_bytes=20_000) as app:
        yield app


@pytest.mark.requirement("T1", "T19")
async def test_a_program_runs_the_same_in_process_and_over_http(installation: Tenuto | TenutoClient) -> None:
    """Turns, sessions and their errors are the same values and types on both sides."""
    await converse(installation)
    await keep_sessions(installation)
    await refuse(installation)


async def converse(t: TenutoApi) -> None:
    """Turns of a program with its own model."""
    ann = t.scope(user="ann")
    turn = await t.begin(ann, "Where is the tile museum?", idempotency_key="q1")
    await t.abandon(turn)
    again = await t.begin(ann, "Where is the tile museum?", idempotency_key="q1")

    assert (turn.state, again.state, again.session.id) == (TurnState.OPENED, TurnState.RESUMED, turn.session.id)
    assert [(one.role, one.text, one.speaker) for one in turn.window] == [
        (Role.USER, "Where is the tile museum?", "ann")
    ]
    with pytest.raises(IdempotencyKeyReused):
        await t.begin(ann, "Where is the wine museum?", idempotency_key="q1")
    with pytest.raises(SessionBusy) as excinfo:
        await t.begin(ann, "And the river?", session_id=turn.session.id)
    assert excinfo.value.session_id == turn.session.id

    renewed = await t.sessions.renew(again)
    assert renewed.lease_until is not None
    answered = await t.finish(renewed, "In Lisbon.", tokens=7, cost_nanos=21)
    assert (answered.turns, answered.messages, answered.tokens, answered.cost_nanos) == (1, 2, 7, 21)
    done = await t.begin(ann, "Where is the tile museum?", idempotency_key="q1")
    assert (done.state, [one.text for one in done.reply]) == (TurnState.FINISHED, ["In Lisbon."])

    call = replace(t.draft(""), parts=({"type": "tool_call", "id": "c1", "name": "map", "arguments": {"near": 1}},))
    own = {"name": "Ann", "id": "item_1", "turn": 7, "extra_fields": 1}
    words = replace(t.draft("Show it", role=Role.USER), extra=own, metadata={"via": "web"})
    second = await t.begin_turn(ann, TurnRequest(user_messages=(words,), session_id=turn.session.id))
    assert (second.window[-1].id, second.window[-1].extra) == (words.id, words.extra)
    assert (second.window[-1].metadata, second.window[-1].sent_at) == (words.metadata, words.sent_at)
    changed = await t.sessions.finish(second, FinishTurn(reply=(call,), changes=Changes(title="Museums")))
    assert (changed.session.title, changed.messages[0].parts) == ("Museums", call.parts)
    third = await t.begin(ann, "Thanks", session_id=turn.session.id)
    assert (await t.abandon(third)).messages == 5


async def keep_sessions(t: TenutoApi) -> None:
    """Sessions without turns."""
    bob, sessions = t.scope(user="bob"), t.sessions
    new = NewSession(title="Trip", context={"language": "en"}, attributes={"vip": True})
    session, is_new = await sessions.create(bob, new, session_id="trip/1")
    assert (session.id, session.scope.user, session.context, is_new) == ("trip/1", "bob", {"language": "en"}, True)
    assert (await sessions.create(bob, session_id="trip/1"))[1] is False

    drafts = tuple(t.draft(str(number), role=Role.USER, speaker="bob") for number in range(1, 8))
    keyed = AppendRequest(messages=drafts, usage=Usage(tokens=3, cost_nanos=5), idempotency_key="once")
    first = await sessions.append(bob, "trip/1", keyed)
    second = await sessions.append(bob, "trip/1", replace(keyed, messages=tuple(map(anew, drafts))))
    assert (first.duplicate, second.duplicate, second.session.messages) == (False, True, 7)
    page = await sessions.messages(bob, "trip/1", Page(limit=2, before=5))
    assert ([one.seq for one in page.messages], page.more_before, page.more_after) == ([3, 4], True, True)
    assert page.session.tokens == 3
    pages = [page async for page in sessions.iter_pages(bob, page.session, size=3)]
    assert [one.text for page in pages for one in page] == list("1234567")

    patched = await sessions.patch(bob, "trip/1", Changes(title="Tour", context={"language": None}))
    assert (patched.title, patched.context) == ("Tour", {})
    with pytest.raises(VersionConflict) as stale:
        await sessions.patch(bob, "trip/1", Changes(title="Late", if_version=patched.version - 1))
    assert (stale.value.expected, stale.value.actual) == (patched.version - 1, patched.version)
    assert await sessions.set_attribute(bob, "trip/1", "colour", "red")
    assert await sessions.get_attribute(bob, "trip/1", "colour") == "red"
    fork = await sessions.fork(bob, "trip/1", at=2, title="Other")
    assert (fork.messages, fork.forked_from and fork.forked_from.session_id) == (2, "trip/1")
    assert (await sessions.patch(bob, "trip/1", Changes(window_start=2))).window_start == 2
    assert (await sessions.truncate(bob, "trip/1", Truncation(after=1, keep_seqs=(4, 6)))).messages == 3
    kept = (await sessions.messages(bob, "trip/1")).messages
    assert [one.text for one in kept] == list("146")
    assert {one.id for one in (await sessions.list(bob)).sessions} == {"trip/1", fork.id}
    assert (await sessions.stats(bob)).sessions == 2
    assert (await sessions.reset(bob, "trip/1")).messages == 0
    await sessions.delete(bob, "trip/1")
    assert [one.id for one in (await sessions.list(bob)).sessions] == [fork.id]


async def refuse(t: TenutoApi) -> None:
    """Errors have their types, and another user finds nothing."""
    ann, eve = t.scope(user="ann"), t.scope(user="eve")
    hers, _ = await t.sessions.create(ann)
    for call in (
        t.sessions.get(eve, hers.id),
        t.sessions.messages(eve, hers.id),
        t.sessions.append(eve, hers.id, AppendRequest(messages=(t.draft("x"),))),
        t.sessions.patch(eve, hers.id, Changes(title="x")),
        t.sessions.fork(eve, hers.id),
        t.sessions.delete(eve, hers.id),
    ):
        with pytest.raises(SessionNotFound) as excinfo:
            await call
        assert excinfo.value.session_id == hers.id
    assert await t.sessions.set_attribute(eve, hers.id, "a", 1) is False
    with pytest.raises(TooLarge) as large:
        await t.begin(ann, "x" * 20_001)
    assert large.value.limit_bytes == 20_000
    with pytest.raises(Invalid, match="NUL"):
        await t.begin(ann, "a\0b")


def anew(draft: Draft) -> Draft:
    """The same words, as a caller makes them again after a crash."""
    return replace(draft, id=f"{draft.id}-again", sent_at=utc_now())


async def test_assistants_memories_and_tasks_answer_over_http(
    client: TenutoClient, server: tuple[ServerProcess, str, str]
) -> None:
    """Replies and their events, memories, boards and notes are the library's own values; notes are the agent's."""
    ann = client.scope(user="ann")
    reply = await client.ask(ann, "My train leaves at 7:40.", language="en")
    assert (reply.offline, reply.created, reply.manifest is not None) == (True, True, True)
    asked = ChatRequest(text="When does my train leave?", session_id=reply.session_id, idempotency_key="k")
    events = [event async for event in (await client.chat()).stream(ann, asked)]
    assert isinstance(events[0], TurnStarted)
    done = events[-1]
    assert isinstance(done, ReplyFinished)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == done.reply.text
    assert "7:40" in done.reply.text
    replayed = await (await client.chat()).take_turn(ann, asked)
    assert (replayed.replayed, replayed.text) == (True, done.reply.text)

    memories = await client.memories()
    cats = await memories.add(ann, "I live in Bologna with two cats.", subject="home")
    found = await memories.search(ann, MemoryQuery(text="Where do I live?"))
    assert (found.hits[0].memory.id, cats.kind, cats.subject) == (cats.id, MemoryKind.FACT, "home")
    assert await memories.forget(ann, [cats.id]) == 1

    task = await client.tasks.open(ann, NewTask(type="review", goal="Read", session_id=reply.session_id))
    board = client.tasks.board(ann, task.id)
    await board.append("clauses", 7, agent="reader")
    entry = await board.read_entry("clauses")
    assert (entry and entry.value, await board.read_entry("none")) == ([7], None)
    lock = await board.lock("clauses", agent="reader")
    assert [held.holder for held in (await board.view()).locks] == ["reader"]
    await board.unlock("clauses", agent="reader", token=lock.token)
    async with tenuto.connect(str(server[0].http.base_url), server[2]) as reader:
        notes = reader.tasks.notes(ann, task.id, "reader")
        assert [await notes.write("a", 1)] == list(await notes.list())
    assert await client.tasks.notes(ann, task.id, "reader").list() == ()
    ended = await client.tasks.finish(ann, task.id, result={"answer": 12})
    assert (ended.is_finished, ended.result) == (True, {"answer": 12})
    assert [event.type async for event in client.tasks.watch(ann, task.id)][-1] == "task.finished"

    written = b"".join([piece async for piece in client.sessions.export(ann, reply.session_id)])
    copy = await client.sessions.restore(ann, parse_export(written, now=utc_now(), new_id=str))
    assert (copy.messages, copy.scope.user) == (4, "ann")


class Faults(httpx.AsyncBaseTransport):
    """The way to a server, which loses answers: the request has arrived, and what it did is done."""

    def __init__(self, way: httpx.AsyncBaseTransport) -> None:
        self.way = way
        self.lose = 0
        self.refuse = 0
        self.cut = 0
        self.seen: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        if self.refuse:
            self.refuse -= 1
            return httpx.Response(503, headers={"Retry-After": "0"}, json={"code": "unavailable", "detail": "away"})
        response = await self.way.handle_async_request(request)
        if self.lose:
            self.lose -= 1
            await response.aclose()
            raise httpx.ReadError("lost", request=request)
        if self.cut:
            self.cut -= 1
            await response.aclose()
            return httpx.Response(response.status_code, stream=CutBody())
        return response


class CutBody(httpx.AsyncByteStream):
    """The body of an answer that is lost after the head."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b""
        raise httpx.ReadError("lost")


async def test_a_lost_answer_is_asked_for_again_and_nothing_is_done_twice() -> None:
    """A retry carries the same idempotency key; what has no key is not sent again once it may have arrived."""
    async with http_service() as service:
        way = Faults(httpx.ASGITransport(app=service.app))
        quick = ClientPolicy(first_pause=ClientPolicy().first_pause / 100, retries=2)
        async with tenuto.connect(BASE, policy=quick, transport=way) as client:
            ann = client.scope(user="ann")
            way.refuse = 1
            turn = await client.begin(ann, "Hello")
            way.lose = 2
            assert (await client.finish(turn, "Hello Ann.")).messages == 2
            way.lose = 1
            added = AppendRequest(messages=(client.draft("More"),))
            assert (await client.sessions.append(ann, turn.session.id, added)).session.messages == 3
            way.lose = 1
            reply = await client.ask(ann, "Hello again", session_id=turn.session.id)
            assert (reply.replayed, (await client.sessions.get(ann, turn.session.id)).messages) == (True, 5)

            way.lose, way.seen = 1, []
            with pytest.raises(Unavailable, match="may have been carried out"):
                await client.sessions.reset(ann, turn.session.id)
            assert len(way.seen) == 1
            copy = await client.sessions.fork(ann, turn.session.id)
            way.lose = 1
            await client.sessions.delete(ann, turn.session.id)
            way.cut = 1
            await client.sessions.delete(ann, copy.id)
            way.lose = 3
            with pytest.raises(Unavailable):
                await client.sessions.list(ann)


class CutOnce(httpx.AsyncBaseTransport):
    """The way to a server, whose first stream breaks after its first words; with the second, the model goes on."""

    def __init__(self, hang: Hang) -> None:
        self.way = httpx.AsyncHTTPTransport()
        self.hang = hang
        self.streams = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self.way.handle_async_request(request)
        if request.url.path != "/v1/chat":
            return response
        self.streams += 1
        if self.streams == 1:
            return httpx.Response(200, stream=Broken(response))
        self.hang.release.set()
        return response

    async def aclose(self) -> None:
        await self.way.aclose()


class Broken(httpx.AsyncByteStream):
    """An answer that breaks off after its first words."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self.response.aiter_raw():
            yield piece
            if b"event: delta" in piece:
                raise httpx.ReadError("lost")

    async def aclose(self) -> None:
        await self.response.aclose()


@pytest.mark.requirement("C9")
async def test_a_stream_that_breaks_goes_on_where_it_broke() -> None:
    """The turn is joined under its key, no event comes twice, and the model is asked once; a stop ends a turn."""
    hang, forever = Hang(), Hang()
    model = ScriptedModel([Say("One\u2028", "two\x85 "), hang, Say("three.")], [Say("Four "), forever])
    quick = ClientPolicy(first_pause=timedelta(milliseconds=1))
    async with (
        http_service(**playing(model, policies=patient())) as service,
        serving(service.app) as url,
        tenuto.connect(url, policy=quick, transport=CutOnce(hang)) as client,
    ):
        chat, ann = await client.chat(), client.scope(user="ann")
        events = [event async for event in chat.stream(ann, ChatRequest(text="Count"))]

        done = events[-1]
        assert isinstance(done, ReplyFinished)
        assert [type(event) for event in events[:-1]] == [TurnStarted, *[TextDelta] * 3]
        assert (done.reply.text, done.reply.replayed, len(model.requests)) == ("One\u2028two\x85 three.", False, 1)

        asked = ChatRequest(text="Go on", session_id=done.reply.session_id)
        left = asyncio.create_task(chat.take_turn(ann, asked))
        await forever.reached.wait()
        stopped = await chat.stop(ann, done.reply.session_id)
        assert (await left, stopped and stopped.text) == (stopped, "Four ")
        assert await chat.stop(ann, done.reply.session_id) is None


async def test_the_program_of_the_guide_runs_on_a_server_without_sessions(
    server: tuple[ServerProcess, str, str],
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "client.md").read_text()
    [shown] = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    given: list[tuple[str, int]] = []

    async def my_model(summary: str, window: tuple[Message, ...]) -> str:
        given.append((summary, len(window)))
        return "In Lisbon."

    names: dict[str, Any] = {"tenuto": tenuto, "key": server[1], "my_model": my_model}
    here = shown.replace("https://tenuto.example", str(server[0].http.base_url))
    exec(f"async def program():\n{indent(here, ' ')}", names)
    await names["program"]()

    assert given == [("", 1)]


@pytest.mark.requirement("T1")
async def test_a_key_decides_for_whom_a_client_acts(server: tuple[ServerProcess, str, str]) -> None:
    """The scope is the key's; another tenant is refused, and so is no key."""
    url, (_, key, _) = str(server[0].http.base_url), server
    async with tenuto.connect(url, key) as client:
        assert (client.owner.tenant, client.scope(user="ann").user) == ("acme", "ann")
        with pytest.raises(AccessRefused) as excinfo:
            await client.sessions.list(client.scope(tenant="evil"))
        assert excinfo.value.code == "scope_mismatch"
        with pytest.raises(Invalid, match="visitor"):
            await client.sessions.list(client.scope(user=None, visitor=True))
    with pytest.raises(AccessRefused):
        async with tenuto.connect(url, "wrong"):
            pass
