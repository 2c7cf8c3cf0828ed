"""LangGraph's checkpointer over tenuto, with LangGraph's own conformance suite and real graphs (issue 19)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

import tenuto
from tenuto.app import Tenuto
from tenuto.integrations.langgraph import TenutoSaver, log, projection
from tenuto.integrations.langgraph.records import Put
from tenuto.model import SessionQuery
from tenuto.model.opaque import is_opaque
from tests.shared_stores import SHARED
from tests.timeouts import LONG

EVERY_CAPABILITY = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tenuto]:
    async with tenuto.open(f"sqlite:///{tmp_path}/lg.db") as opened:
        yield opened


def thread(name: str = "t", **more: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name, "checkpoint_ns": "", **more}}


def chatting(saver: BaseCheckpointSaver[Any]) -> Any:
    """A graph that answers, and that forgets its first message when it is told to."""

    async def answer(state: MessagesState) -> dict[str, Any]:
        last = state["messages"][-1].text
        gone = [RemoveMessage(id=state["messages"][0].id or "")] if last == "forget" else []
        return {"messages": [*gone, AIMessage(content=f"re {last}", additional_kwargs={"n": 1})]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


async def say(graph: Any, text: str, config: RunnableConfig, run_id: str | None = None) -> None:
    named = config if run_id is None else {**config, "metadata": {"run_id": run_id}}
    await graph.ainvoke({"messages": [HumanMessage(content=text)]}, named)


async def words(graph: Any, config: RunnableConfig) -> list[str]:
    return [message.text for message in (await graph.aget_state(config)).values["messages"]]


async def put(saver: TenutoSaver, config: RunnableConfig, old: Checkpoint, messages: Any) -> tuple[Any, Any]:
    """Put a checkpoint with other messages after one that was read; returns what the next one follows."""
    versions: Any = old["channel_versions"]
    versions = {**versions, "messages": saver.get_next_version(versions.get("messages"), None)}
    values = {**old["channel_values"], "messages": messages}
    new: Any = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    metadata: Any = {"source": "loop", "step": 1, "parents": {}}
    return await saver.aput(config, new, metadata, {"messages": versions["messages"]}), new


async def past(graph: Any, config: RunnableConfig) -> list[Any]:
    """What each checkpoint of a thread holds, without ids, newest first."""
    return [
        ([one.model_dump(exclude={"id"}) for one in state.values.get("messages", [])], state.next, state.metadata)
        async for state in graph.aget_state_history(config)
    ]


async def test_every_capability_of_the_conformance_suite_passes(app: Tenuto) -> None:
    """Issue 19: LangGraph's own suite, base and extended; what it would pass over as missing is demanded."""

    @checkpointer_test(name="tenuto")
    async def saver() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        yield TenutoSaver(app, user="ann")

    report = await validate(saver)

    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert failures == {}
    assert {name: result.tests_passed for name, result in report.results.items()} == EVERY_CAPABILITY


async def test_differences_read_back_as_whole_checkpoints(app: Tenuto, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph's history equals that in LangGraph's memory, cached and read anew: forks, edits and copies included."""
    monkeypatch.setattr(projection, "_LEAST_SNAPSHOT", 2000)
    plain, saver = chatting(InMemorySaver()), TenutoSaver(app, user="ann")
    graphs = (plain, chatting(saver))
    for graph in graphs:
        for place in range(6):
            await say(graph, f"{place}", thread(), run_id=f"r{place}")
        await say(graph, "forget", thread(), run_id="r6")
        earlier = [state async for state in graph.aget_state_history(thread())][8]
        await say(graph, "fork", earlier.config, run_id="r7")
        first = (await graph.aget_state(thread())).values["messages"][0]
        changed = [HumanMessage(content="edited", id=first.id), HumanMessage(content="by hand")]
        await graph.aupdate_state(thread(), {"messages": changed}, as_node="answer")
    expected = await past(plain, thread())
    assert len(expected) == 25

    assert await past(graphs[1], thread()) == expected
    anew = TenutoSaver(app, user="ann")
    assert await past(chatting(anew), thread()) == expected
    assert await words(chatting(TenutoSaver(app, user="ann")), thread()) == await words(plain, thread())
    await saver.acopy_thread("t", "copy")
    assert await past(graphs[1], thread("copy")) == expected
    await saver.adelete_for_runs(["r1", "r4"])
    assert [one for one in expected if one[2].get("run_id") not in ("r1", "r4")] == await past(graphs[1], thread())
    await saver.aput_writes(thread(checkpoint_id="z"), [("items", "early")], "task")
    await saver.aprune(["t"])
    assert await past(chatting(anew), thread()) == expected[:1]
    await saver.aput(thread(), {**empty_checkpoint(), "id": "z"}, {}, {})
    [newest] = [one async for one in saver.alist(thread(), limit=1)]
    assert newest.pending_writes == [("task", "items", "early")]


def added(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *(one for write in writes for one in write)]


class Deltas(TypedDict):
    """State with a channel of which checkpoints hold only what was added."""

    items: Annotated[list[str], DeltaChannel(added)]


async def test_pruning_keeps_what_delta_channels_are_rebuilt_from(app: Tenuto) -> None:
    saver = TenutoSaver(app, user="ann")
    builder = StateGraph(Deltas)
    builder.add_node("add", lambda state: {"items": [f"{len(state['items'])}"]})
    builder.add_edge(START, "add")
    builder.add_edge("add", END)
    graph = builder.compile(checkpointer=saver)
    for name in "abc":
        await graph.ainvoke({"items": [name]}, thread())
    held = (await graph.aget_state(thread())).values["items"]

    await saver.aprune(["t"])

    anew = builder.compile(checkpointer=TenutoSaver(app, user="ann"))
    assert held == ["a", "1", "b", "3", "c", "5"]
    assert (await anew.aget_state(thread())).values["items"] == held


@pytest.mark.requirement("T3")
async def test_sixteen_writers_on_one_thread_lose_nothing(app: Tenuto, tmp_path: Path) -> None:
    """Half of them in an installation of their own, as in another process; LangGraph's own savers lose most."""

    async def write(saver: TenutoSaver, number: int) -> None:
        for turn in range(4):
            found = await saver.aget_tuple(thread())
            config, old = (found.config, found.checkpoint) if found else (thread(), empty_checkpoint())
            longer = [*old["channel_values"].get("messages", []), f"q{number}.{turn}", f"a{number}.{turn}"]
            await put(saver, config, old, longer)

    async with tenuto.open(f"sqlite:///{tmp_path}/lg.db") as other:
        savers = [TenutoSaver(app, user="ann"), TenutoSaver(other, user="ann")]
        async with asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(write(savers[number % 2], number))
        found = [await saver.aget_tuple(thread()) for saver in savers]

    held = [one.checkpoint["channel_values"]["messages"] for one in found if one is not None]
    said = [f"{kind}{number}.{turn}" for kind in "qa" for number in range(16) for turn in range(4)]
    assert held[0] == held[1]
    assert sorted(held[0]) == sorted(said)
    graph = chatting(savers[0])
    await asyncio.gather(*(say(graph, f"{number}", thread("g")) for number in range(8)))
    assert sorted(await words(graph, thread("g"))) == sorted([f"{n}" for n in range(8)] + [f"re {n}" for n in range(8)])


class Ordered(TenutoSaver):
    """A saver whose reads and puts of named runs take place in a given order."""

    def arrange(self, order: str) -> None:
        self._order, self._changed = list(order), asyncio.Condition()

    @asynccontextmanager
    async def _in_turn(self, config: RunnableConfig) -> AsyncIterator[None]:
        name = config["configurable"].get("run")
        if name is None:
            yield
            return
        async with self._changed:
            await self._changed.wait_for(lambda: self._order[0] == name)
        yield
        async with self._changed:
            self._order.pop(0)
            self._changed.notify_all()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        async with self._in_turn(config):
            return await super().aget_tuple(config)

    async def aput(self, config: RunnableConfig, *rest: Any) -> RunnableConfig:
        async with self._in_turn(config):
            return await super().aput(config, *rest)


# Of each run its read and its three puts. In the first order C reads a checkpoint that has messages of B, while its
# writer A knew of none, and puts its own after D has added some.
ORDERS = ("ABDBBBACDDDCCCAA", "BBCDBCACCDADABDA", "BCDBDDDCABBAACAC", "AADCADBCACBBDBCD")
STORES = {"memory": lambda *_: "memory://"} | {one.name: one.url for one in SHARED if one.name != "redis cluster"}


@pytest.fixture(params=STORES)
async def any_app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tenuto]:
    async with tenuto.open(STORES[request.param](request.getfixturevalue, tmp_path)) as opened:
        yield opened


@pytest.mark.requirement("T3")
async def test_runs_that_begin_a_thread_together_lose_nothing(any_app: Tenuto) -> None:
    """Four runs in fixed orders; a graph leaves out of its next checkpoint what has no version in the last one."""
    saver = Ordered(any_app, user="ann")
    graph = chatting(saver)
    for order in ORDERS:
        saver.arrange(order)
        async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
            for name in "ABCD":
                begun = {"messages": [HumanMessage(content=name)]}
                group.create_task(graph.ainvoke(begun, thread(order, run=name), durability="sync"))
        for reader in (graph, chatting(TenutoSaver(any_app, user="ann"))):
            assert sorted(await words(reader, thread(order))) == [*"ABCD", "re A", "re B", "re C", "re D"], order

        async for one in saver.alist(thread(order)):
            assert one.checkpoint["channel_values"].keys() <= one.checkpoint["channel_versions"].keys(), order


@pytest.mark.requirement("T3")
@pytest.mark.parametrize("url", ["memory://", "sqlite"])
async def test_sixteen_threads_that_begin_a_thread_lose_nothing(url: str, tmp_path: Path) -> None:
    """With the blocking methods."""

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(content=f"re {state['messages'][-1].text}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    saver = TenutoSaver(url if "://" in url else tmp_path / "lg.db", user="ann")
    with closing(saver), ThreadPoolExecutor(16) as pool:
        graph: Any = builder.compile(checkpointer=saver)
        for name in "abcd":
            together = threading.Barrier(16)

            def run(number: int, name: str = name, together: threading.Barrier = together) -> None:
                together.wait(LONG)
                graph.invoke({"messages": [HumanMessage(content=f"{number}")]}, thread(name))

            list(pool.map(run, range(16)))
            held = [message.text for message in graph.get_state(thread(name)).values["messages"]]
            assert sorted(held) == sorted(f"{kind}{number}" for kind in ("", "re ") for number in range(16))


async def test_a_run_that_names_a_checkpoint_forks_beside_others(app: Tenuto) -> None:
    """It goes back on purpose, even if it has read the same checkpoint as the newest one before."""
    saver, other = TenutoSaver(app, user="ann"), TenutoSaver(app, user="ann")
    await put(saver, thread(), empty_checkpoint(), ["one"])
    newest = await saver.aget_tuple(thread())
    assert newest is not None
    await asyncio.create_task(say_directly(other, "later"))

    named = await saver.aget_tuple(newest.config)
    assert named is not None
    await put(saver, named.config, named.checkpoint, ["one", "fork"])

    assert await asyncio.create_task(say_directly(other, "more")) == ["one", "fork", "more"]


async def test_a_run_beside_a_fork_keeps_what_it_knows(app: Tenuto) -> None:
    """Another run goes back while this one works: each continues its own line, whichever stores first."""
    saver, other = TenutoSaver(app, user="ann"), TenutoSaver(app, user="ann")
    assert await saver.aget_tuple(thread()) is None
    first = await put(saver, thread(), empty_checkpoint(), ["1"])
    last = await put(saver, *await put(saver, *first, ["1", "2"]), ["1", "2", "3"])

    fork = await asyncio.create_task(put_after(other, first[0], "f"))
    await asyncio.create_task(say_directly(other, "g"))
    last = await put(saver, *last, ["1", "2", "3", "4"])
    await asyncio.create_task(put_after(other, fork, "h"))
    await put(saver, *last, ["1", "2", "3", "4", "5"])

    for reader in (saver, TenutoSaver(app, user="ann")):
        found = [one.checkpoint["channel_values"]["messages"] async for one in reader.alist(thread())]
        assert ["".join(one) for one in found] == ["12345", "1fh", "1234", "1fg", "1f", "123", "12", "1"]
    await saver.aprune(["t"])
    assert await asyncio.create_task(say_directly(other, "6")) == ["1", "2", "3", "4", "5", "6"]


async def put_after(saver: TenutoSaver, config: RunnableConfig, text: str) -> Any:
    """Go back to a checkpoint and add a message to it."""
    found = await saver.aget_tuple(config)
    assert found is not None
    made, _ = await put(saver, config, found.checkpoint, [*found.checkpoint["channel_values"]["messages"], text])
    return made


async def say_directly(saver: TenutoSaver, text: str) -> list[Any]:
    """Add a message to the newest checkpoint; returns all of them."""
    found = await saver.aget_tuple(thread())
    assert found is not None
    longer = [*found.checkpoint["channel_values"]["messages"], text]
    await put(saver, found.config, found.checkpoint, longer)
    return longer


@pytest.mark.parametrize("writes_first", [False, True])
async def test_a_run_keeps_what_it_knows_if_its_thread_is_deleted(
    app: Tenuto, monkeypatch: pytest.MonkeyPatch, *, writes_first: bool
) -> None:
    """Its next checkpoint is the difference to a deleted one, and brings a snapshot of the deleted log."""
    monkeypatch.setattr(projection, "_LEAST_SNAPSHOT", 1)
    saver = TenutoSaver(app, user="ann")
    assert await saver.aget_tuple(thread()) is None
    begun: Any = {**empty_checkpoint(), "channel_values": {"x": 1}}
    config, last = await put(saver, *await put(saver, thread(), begun, ["a"]), ["a", "b"])
    await saver.aput_writes(config, [("messages", "w" * 2000)], "task")

    await saver.adelete_thread("t")
    if writes_first:
        await saver.aput_writes(config, [("messages", "w")], "task")
    await put(saver, *await put(saver, config, last, ["a", "b", "c"]), ["a", "b", "c", "d"])

    for reader in (saver, TenutoSaver(app, user="ann")):
        held = await asyncio.create_task(reader.aget_tuple(thread()))
        assert held is not None
        assert held.checkpoint["channel_values"] == {"x": 1, "messages": ["a", "b", "c", "d"]}


class Counting(JsonPlusSerializer):
    """The usual serializer, which counts what it decodes."""

    decoded = 0

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        self.decoded += 1
        return super().loads_typed(data)


async def test_reads_decode_only_what_they_return(app: Tenuto) -> None:
    """A listing with a limit builds no more checkpoints; an old one takes nothing of those after it but its writes."""
    serde = Counting()
    saver = TenutoSaver(app, user="ann", serde=serde)
    assert await saver.aget_tuple(thread()) is None
    first = last = await put(saver, thread(), empty_checkpoint(), ["0"])
    for place in range(1, 12):
        last = await put(saver, *last, [f"{one}" for one in range(place + 1)])
    await saver.aput_writes(first[0], [("messages", "w")], "task")

    counts, found = list[int](), list[Any]()
    for limit, only in ((None, None), (1, {"step": 1}), (0, None)):
        serde.decoded = 0
        found.append([one.config async for one in saver.alist(thread(), filter=only, limit=limit)])
        counts.append(serde.decoded)
    serde.decoded = 0
    oldest = await saver.aget_tuple(first[0])

    # Of each checkpoint what it adds; of each returned one itself and its metadata; the filter; and a write.
    assert [len(one) for one in found] == [12, 1, 0]
    assert counts == [12 + 24 + 1, 12 + 2 + 12, 0]
    assert serde.decoded == 1 + 2 + 1
    assert oldest is not None
    assert (oldest.checkpoint["channel_values"], oldest.pending_writes) == (
        {"messages": ["0"]},
        [("task", "messages", "w")],
    )


async def test_a_thread_that_grows_makes_others_leave_the_cache(app: Tenuto, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of older checkpoints counts, also what a snapshot has made unnecessary to read."""
    monkeypatch.setattr(log, "_MOST_BYTES", 100_000)
    saver = TenutoSaver(app, user="ann")
    for name in "abc":
        assert await saver.aget_tuple(thread(name)) is None
        last = await put(saver, thread(name), empty_checkpoint(), name)
    assert len(saver._cache) == 3
    for place in range(12):
        last = await put(saver, *last, f"{place}" * 9000)

    assert [key[2] for key in saver._cache] == [saver.session_id("c")]
    for name, value in (("a", "a"), ("c", "11" * 9000)):
        held = await saver.aget_tuple(thread(name))
        assert held is not None
        assert held.checkpoint["channel_values"]["messages"] == value
    assert saver._cache.weight == sum(one.projection.memory_bytes() for _, one in saver._cache.items())


def record(name: str, parent: str | None = None, **rest: Any) -> Put:
    return Put(ns="", id=name, parent=parent, checkpoint=("null", b""), metadata=("null", b""), **rest)


def test_a_reader_from_a_snapshot_sees_the_same_as_one_from_the_beginning() -> None:
    """A snapshot has no other lines than the newest, so no reader continues them after it."""
    begun = projection.Projection(lambda blob: blob[1].decode().split(), "i")
    begun.apply(1, record("1", added={"m": (0, ("", b"a"))}))
    begun.apply(2, record("2", "1", added={"m": (1, ("", b"b"))}))
    begun.apply(3, record("3", "1", full=True, lists={"m": ("", b"a f")}))
    snapshot = begun.snapshot(lambda items: ("", " ".join(items).encode()))
    assert snapshot is not None
    readers = (begun, projection.Projection.from_snapshot(begun.load, snapshot))
    for reader in readers:
        reader.apply(4, record("4", "3", full=True, lists={"m": ("", b"a f g")}, snapshot=snapshot))
        reader.apply(5, record("5", "2", added={"m": (2, ("", b"c"))}))

    assert [reader.head and reader.head.lists for reader in readers] == [{"m": ["a", "f", "g", "c"]}] * 2


def test_a_repeated_put_counts_once_and_a_rebased_one_is_the_newest() -> None:
    """A put whose answer was lost is repeated; a checkpoint that stands for removed ones is newest whatever its id."""
    state = projection.Projection(lambda blob: blob[1].decode().split(), "i")
    for seq, one in enumerate([record("5", full=True), record("6", added={"m": (0, ("", b"a"))})] * 2):
        state.apply(seq + 1, one)

    assert state.head is not None
    assert (state.head.put.id, state.head.lists) == ("6", {"m": ["a"]})
    state.apply(5, record("4", full=True, rebased=True, lists={"m": ("", b"b")}))
    assert (state.head.put.id, state.head.lists) == ("4", {"m": ["b"]})


@pytest.mark.requirement("T1")
async def test_threads_are_sessions_of_their_owner(app: Tenuto) -> None:
    """The same thread id of another user or tenant is another thread; deleting or erasing leaves nothing."""
    ann, bob = TenutoSaver(app, user="ann"), TenutoSaver(app, user="bob")
    other = TenutoSaver(app, user="ann", tenant="other")
    for saver, text in ((ann, "mine"), (bob, "his")):
        await say(chatting(saver), text, thread("1"))

    assert await words(chatting(ann), thread("1")) == ["mine", "re mine"]
    assert await other.aget_tuple(thread("1")) is None
    assert [one async for one in other.alist(None)] == []
    assert {one.config["configurable"]["thread_id"] async for one in bob.alist(None)} == {"1"}
    [session] = (await app.sessions.list(ann.scope, SessionQuery())).sessions
    assert (session.id, session.title) == (ann.session_id("1"), "1")
    await app.sessions.delete(ann.scope, session.id)
    assert await ann.aget_tuple(thread("1")) is None
    await app.privacy.erase(bob.scope, by="test")
    assert await bob.aget_tuple(thread("1")) is None


async def test_checkpoints_are_opaque_to_the_privacy_policy(tmp_path: Path) -> None:
    """A rule that broke the bytes would break the graph; encryption at rest is what protects them."""
    async with tenuto.open(f"sqlite:///{tmp_path}/lg.db", privacy_message="redact") as app:
        saver = TenutoSaver(app, user="ann")
        await say(chatting(saver), "write to ann.lee@example.com", thread())
        stored = await app.sessions.messages(saver.scope, saver.session_id("t"))
        assert all(is_opaque(message.parts[0]["data"]) for message in stored.messages)

        assert await words(chatting(TenutoSaver(app, user="ann")), thread()) == [
            "write to ann.lee@example.com",
            "re write to ann.lee@example.com",
        ]


INTERRUPTED = """
import asyncio, os, signal, sys
from typing import TypedDict
import tenuto
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from tenuto.integrations.langgraph import TenutoSaver

State = TypedDict("State", {"name": str, "drafts": int, "answer": str})

def build(saver):
    builder = StateGraph(State)
    builder.add_node("first", lambda state: {"drafts": state.get("drafts", 0) + 1})
    builder.add_node("ask", lambda state: {"answer": interrupt("really?")})
    builder.add_edge(START, "first")
    builder.add_edge("first", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)

async def main():
    async with tenuto.open(sys.argv[1]) as app:
        await build(TenutoSaver(app, user="ann")).ainvoke({"name": "x"}, {"configurable": {"thread_id": "t"}})
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_an_interrupted_graph_resumes_after_sigkill(tmp_path: Path) -> None:
    """What was acknowledged is there; finished nodes are not run again."""
    url, names = f"sqlite:///{tmp_path}/lg.db", dict[str, Any]()
    killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", INTERRUPTED, url], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    exec(INTERRUPTED, names)

    async with tenuto.open(url) as app:
        graph = names["build"](TenutoSaver(app, user="ann"))
        state = await graph.aget_state(thread())
        done = await graph.ainvoke(Command(resume="yes"), thread())

    assert state.next == ("ask",)
    assert [one.value for one in state.interrupts] == ["really?"]
    assert done == {"name": "x", "drafts": 1, "answer": "yes"}


def test_a_program_without_an_event_loop_has_the_blocking_methods(tmp_path: Path) -> None:
    saver = TenutoSaver(tmp_path / "lg.db", user="ann")
    with closing(saver):
        builder = StateGraph(MessagesState)
        builder.add_node("answer", lambda state: {"messages": [AIMessage(content=f"re {state['messages'][-1].text}")]})
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        graph = builder.compile(checkpointer=saver)
        for text in ("one", "two"):
            graph.invoke({"messages": [HumanMessage(content=text)]}, thread())
        saver.copy_thread("t", "copy")
        saver.prune(["t"])
        saver.delete_for_runs(["unknown"])

        assert [message.text for message in graph.get_state(thread("copy")).values["messages"]] == [
            "one", "re one", "two", "re two"
        ]  # fmt: skip
        assert len(list(saver.list(thread()))) == 1
        saver.delete_thread("t")
        assert saver.get_tuple(thread()) is None
