"""`tenuto import`: files that other stores wrote become sessions and memories, once."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from agents import SQLiteSession
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage, message_to_dict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import Invalid, InvalidJson
from tenuto.model import Message, Page, Role, Status
from tenuto.sessions.importers import ImportReport, Skipped, import_records, read_source
from tenuto.sessions.importers.files import iter_items
from tenuto.sessions.items import item_from_message
from tests.journeys.terminal import Shell

ITEMS: list[Any] = [
    {"role": "user", "content": "Weather in Rome?"},
    {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "21 degrees"},
    {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Warm."}]},
]
TALK: list[AnyMessage] = [
    SystemMessage("Be brief."),
    HumanMessage("Weather in Rome?", name="Ann"),
    AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Rome"}, "id": "c1"}]),
    ToolMessage("21 degrees", tool_call_id="c1"),
    AIMessage("Warm."),
]
TALKED = [
    (Role.SYSTEM, "Be brief."),
    (Role.USER, "Weather in Rome?"),
    (Role.ASSISTANT, ""),
    (Role.TOOL, ""),
    (Role.ASSISTANT, "Warm."),
]


def write_openai_agents(path: Path) -> None:
    """By the SDK itself."""

    async def write() -> None:
        for name in ("chat-1", "chat-2"):
            await SQLiteSession(name, path).add_items(ITEMS)

    asyncio.run(write())
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('chat-2', 'no JSON')")


def write_langchain(path: Path) -> None:
    """The table of `SQLChatMessageHistory`, with LangChain's own form of messages."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE message_store (id INTEGER PRIMARY KEY, session_id TEXT, message TEXT)")
        rows = [("chat-1", json.dumps(message_to_dict(one))) for one in TALK]
        db.executemany("INSERT INTO message_store (session_id, message) VALUES (?, ?)", rows)


made: list[str] = []


@dataclass
class Place:
    """A class of the program whose checkpoints are read; its code must not run."""

    name: str

    def __post_init__(self) -> None:
        made.append(self.name)


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    place: Place


def write_langgraph(path: Path) -> None:
    """The table of `SqliteSaver`, with a checkpoint of a graph that ran."""
    saver = InMemorySaver()
    graph = StateGraph(State)
    graph.add_node("answer", lambda _: {"messages": TALK[2:]})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    config: Any = {"configurable": {"thread_id": "chat-1"}}
    graph.compile(checkpointer=saver).invoke({"messages": TALK[:2], "place": Place("Rome")}, config)
    insert = "INSERT INTO checkpoints (thread_id, checkpoint_id, type, checkpoint) VALUES (?, ?, ?, ?)"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT DEFAULT '', checkpoint_id TEXT, "
            "parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB)"
        )
        for saved in saver.list(config):
            kind, blob = saver.serde.dumps_typed(saved.checkpoint)
            db.execute(insert, ("chat-1", saved.checkpoint["id"], kind, blob))
        db.execute(insert, ("other", "1", *saver.serde.dumps_typed({"channel_values": {}})))


def write_chatgpt(path: Path) -> None:
    """An archive with a tree: the first answer was made anew."""

    def node(name: str, parent: str | None, role: str, *parts: Any, kind: str = "text", **about: Any) -> dict[str, Any]:
        said = {
            "id": f"m-{name}",
            "author": {"role": role},
            "create_time": 1_700_000_000.5,
            "content": {"content_type": kind, "parts": parts},
            "metadata": about,
        }
        return {"id": name, "parent": parent, "children": [], "message": said}

    tree = {
        "root": {"id": "root", "parent": None, "children": ["s"], "message": None},
        "s": node("s", "root", "system", "", is_visually_hidden_from_conversation=True),
        "q": node("q", "s", "user", "Weather in\0 Rome?", {"content_type": "image_asset_pointer", "asset": "x"}),
        "old": node("old", "q", "assistant", "Cold."),
        "think": node("think", "q", "assistant", kind="thoughts"),
        "new": node("new", "think", "assistant", "Warm.", model_slug="gpt-5"),
    }
    talk = {"id": "conv-1", "title": "Rome\n", "create_time": 1, "mapping": tree, "current_node": "new"}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("user.json", "{}")
        archive.writestr("conversations.json", json.dumps([{**talk, "is_archived": True}, {"id": "broken"}]))


def write_mem0(path: Path) -> None:
    """What `get_all` answers."""
    entries = [
        {"id": "1", "memory": "Has two cats", "user_id": "ann", "created_at": "2026-01-02T03:04:05-07:00"},
        {"id": "2", "memory": "Lives in Rome", "user_id": "bob"},
        {"id": "3", "memory": "Belongs to nothing"},
        {"id": "4", "memory": "x" * 5000, "user_id": "ann"},
        {"id": "5"},
    ]
    path.write_text(json.dumps({"results": entries}))


def write_zep(path: Path) -> None:
    """Sessions with their messages, as its API answers them."""
    said = [
        {"uuid": "u1", "role": "Ann", "role_type": "user", "content": "Weather in Rome?", "created_at": "2026-01-02"},
        {"uuid": "u2", "role": "assistant", "content": "Warm."},
        {"uuid": "u3", "role": "assistant", "content": ""},
    ]
    session = {"session_id": "chat-1", "user_id": "ann", "messages": said, "facts": ["Ann likes Rome"]}
    path.write_text(json.dumps([session, {"messages": said}]))


def write_letta(path: Path) -> None:
    """An agent file."""

    def call(name: str, **arguments: Any) -> list[dict[str, Any]]:
        return [{"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]

    def text(words: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": words}]

    question = json.dumps({"type": "user_message", "message": "Weather in Rome?", "time": "now"})
    messages = [
        {"id": "1", "role": "user", "content": text(json.dumps({"type": "login"}))},
        {"id": "2", "role": "user", "content": text(question), "created_at": "2026-01-02T03:04:05Z"},
        {"id": "3", "role": "assistant", "content": text(""), "tool_calls": call("weather", city="Rome")},
        {"id": "4", "role": "tool", "name": "weather", "tool_call_id": "c1", "content": text("21 degrees")},
        {"id": "5", "role": "assistant", "content": [], "tool_calls": call("send_message", message="Warm.")},
        {"id": "6", "role": "tool", "name": "send_message", "tool_call_id": "c1", "content": text("ok")},
    ]
    agent = {"id": "agent-1", "name": "Helper", "messages": messages, "block_ids": ["b1", "b2"]}
    blocks = [
        {"id": "b1", "label": "human", "value": "Ann has two cats."},
        {"id": "b2", "label": "persona", "value": "I"},
    ]
    path.write_text(json.dumps({"agents": [agent], "blocks": blocks}))


WRITERS: dict[str, tuple[Callable[[Path], None], ImportReport]] = {
    "openai-agents": (
        write_openai_agents,
        ImportReport(sessions=2, messages=8, skipped={"message: not JSON of a message": 1}),
    ),
    "langchain": (write_langchain, ImportReport(sessions=1, messages=5)),
    "langgraph": (
        write_langgraph,
        ImportReport(
            sessions=1, messages=5, skipped={"session: its newest checkpoint has no readable channel 'messages'": 1}
        ),
    ),
    "chatgpt": (
        write_chatgpt,
        ImportReport(
            sessions=1,
            messages=3,
            skipped={
                "message: hidden in ChatGPT": 1,
                "message: on another branch": 1,
                "session: not a conversation of ChatGPT": 1,
            },
        ),
    ),
    "mem0": (
        write_mem0,
        ImportReport(
            memories=2, skipped={"memory: it belongs to no user": 1, "memory: invalid": 1, "memory: it has no text": 1}
        ),
    ),
    "zep": (
        write_zep,
        ImportReport(
            sessions=1,
            messages=2,
            memories=1,
            skipped={"message: empty": 1, "session: not an object with messages and an id": 1},
        ),
    ),
    "letta": (
        write_letta,
        ImportReport(
            sessions=1,
            messages=4,
            memories=1,
            skipped={"message: empty, or an event of the agent": 2, "memory: a block of the agent, not of its user": 1},
        ),
    ),
}


async def bring(app: Tenuto, source: str, path: Path, *, dry_run: bool = False, **who: Any) -> ImportReport:
    return await import_records(
        read_source(source, path), scope=app.scope(**who), sessions=app.sessions, memories=app.memories, dry_run=dry_run
    )


@pytest.mark.requirement("T19")
@pytest.mark.parametrize("source", WRITERS)
async def test_a_foreign_store_is_imported_once(source: str, tmp_path: Path) -> None:
    """Counts say what came and what did not; a dry run writes nothing, and a second run adds nothing."""
    write, expected = WRITERS[source]
    path = tmp_path / "source"
    await asyncio.to_thread(write, path)
    # An agent file names no user.
    who: dict[str, Any] = {"user": "ann"} if source == "letta" else {}
    async with tenuto.open("memory://") as app:
        assert await bring(app, source, path, dry_run=True, **who) == expected
        assert (await app.sessions.list(app.scope())).sessions == ()
        assert await bring(app, source, path, **who) == expected
        again = await bring(app, source, path, **who)
        assert (again.sessions, again.memories, again.existing) == (0, 0, expected.sessions + expected.memories)
        assert again.skipped == expected.skipped


@pytest.mark.requirement("T19")
async def test_imported_conversations_read_as_they_were(tmp_path: Path) -> None:
    """Items come back equal, tool calls are paired, and the branch of a tree is the current one."""
    for source, (write, _) in WRITERS.items():
        await asyncio.to_thread(write, tmp_path / source)
    async with tenuto.open("memory://") as app:

        async def read(source: str, session_id: str, **who: Any) -> tuple[Message, ...]:
            await bring(app, source, tmp_path / source, **who)
            page = await app.sessions.messages(app.scope(), session_id, Page())
            return page.messages

        items = await read("openai-agents", "chat-2", user="ann")
        assert list(map(item_from_message, items)) == ITEMS
        made.clear()
        for source, tenant in (("langchain", "t1"), ("langgraph", "t2")):
            await bring(app, source, tmp_path / source, tenant=tenant)
            talk = (await app.sessions.messages(app.scope(tenant=tenant), "chat-1")).messages
            assert [(one.role, one.text) for one in talk] == TALKED
            assert (talk[2].parts[-1]["id"], talk[3].parts[0]["call_id"]) == ("c1", "c1")
            assert talk[1].extra["langchain"]["data"]["name"] == "Ann"
        assert made == []

        said = await read("chatgpt", "conv-1")
        assert [(one.role, one.text) for one in said] == [
            (Role.USER, "Weather in Rome?"),
            (Role.ITEM, ""),
            (Role.ASSISTANT, "Warm."),
        ]
        assert said[0].sent_at.timestamp() == 1_700_000_000.5
        head = await app.sessions.get(app.scope(), "conv-1")
        assert (head.title, head.status, said[2].metadata["model"]) == ("Rome", Status.ARCHIVED, "gpt-5")

        letta = await read("letta", "agent-1", user="ann")
        assert [one.text for one in letta] == ["Weather in Rome?", "", "", "Warm."]
        assert letta[1].parts[0]["arguments"] == {"city": "Rome"}
        await bring(app, "mem0", tmp_path / "mem0")
        (cats,) = await (await app.memories()).list(app.scope(user="ann"), session_id="", limit=1)
        assert cats.text in ("Has two cats", "Ann has two cats.")


@pytest.mark.requirement("T19")
def test_malformed_exports_are_skipped_or_refused(tmp_path: Path) -> None:
    """Whatever types an export has, there is no traceback."""
    path, odd = tmp_path / "source", ([1], {"a": 1}, 7, "text", True, None, [[1], {"id": [1]}, {"id": {}}])
    tree = {"m": {"message": {"content": {"content_type": "text", "parts": ["Hi"]}}}}
    said = {"role": "assistant", "content": "Hi"}
    for value in odd:
        agent = {"id": "a", "messages": [{**said, "tool_calls": value}], "block_ids": value, "core_memory": value}
        known = {"agents": [{**agent, "block_ids": ["b"]}], "blocks": value}
        for source, whole in {
            "chatgpt": {"id": "c", "mapping": tree, "current_node": value},
            "letta": [{"agents": [agent], "blocks": []}, known, value],
            "zep": [{"session_id": "z", "messages": [said, value], "facts": value, "metadata": value}, value],
            "mem0": [value, {"memory": "Has cats", "id": value, "user_id": value, "created_at": value}],
        }.items():
            path.write_text(json.dumps(whole))
            assert any(not isinstance(record, Skipped) for record in read_source(source, path))

    write_chatgpt(path)
    whole = path.read_bytes()
    flagged = whole.replace(b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\1\0")
    flagged = flagged.replace(b"PK\3\4\x14\0\0\0", b"PK\3\4\x14\0\1\0")
    for damaged in (flagged, whole.replace(b"Weather", b"Whether"), whole.replace(b"PK\1\2", b"PK\1\1")):
        assert damaged != whole
        path.write_bytes(damaged)
        with pytest.raises(Invalid, match="archive"):
            list(read_source("chatgpt", path))


@pytest.mark.requirement("T1")
def test_a_session_of_another_user_keeps_its_id(shell: Shell, tmp_path: Path) -> None:
    """An id that is taken elsewhere is not told as taken, and the import goes under another one."""
    write_zep(tmp_path / "zep.json")
    first = shell.ask("import", "zep", "zep.json", "--user", "bob")
    second = shell.ask("import", "zep", "zep.json", "--user", "eve")
    third = shell.ask("import", "zep", "zep.json", "--user", "eve")

    assert (first["sessions"], second["sessions"], third["sessions"], third["existing"]) == (1, 1, 0, 2)
    assert len(shell.ask("sessions", "list")["sessions"]) == 2
    dry = ("import", "zep", "zep.json", "--tenant", "other", "--dry-run")
    told = shell.run(*dry).stdout.splitlines()
    assert shell.run(*dry, "--store", "sqlite:///new/dry.db").stdout.splitlines() == told
    assert not (tmp_path / "new").exists()
    assert told == [
        "1 session with 2 messages and 1 memory would be imported.",
        "skipped 1 × message: empty",
        "skipped 1 × session: not an object with messages and an id",
    ]
    assert shell.run("import", "elsewhere", "zep.json").returncode == 2


def test_items_of_a_large_file_are_read_one_by_one() -> None:
    """An array is read in pieces, whatever lies on their borders; what is no JSON is refused."""
    items = [{"text": "x" * 700_000, "n": number, "é": [1.5, None]} for number in range(5)]
    file = io.BytesIO(b"\xef\xbb\xbf " + json.dumps(items, ensure_ascii=False).encode())

    first = iter_items(file)
    assert next(first) == items[0]
    assert file.tell() < 3 << 20
    assert list(first) == items[1:]
    for broken in (b"[1, 2", b"[1 nope]", b"", b"\xff"):
        with pytest.raises(InvalidJson):
            list(iter_items(io.BytesIO(broken)))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"nothing of the kind" * 100)
    for source, why in (("openai-agents", "read the database"), ("zep", "valid JSON"), ("nope", "no such source")):
        with pytest.raises(Invalid, match=why):
            list(read_source(source, other))
    write_langchain(tmp_path / "store")
    with pytest.raises(Invalid, match="no table checkpoints"):
        list(read_source("langgraph", tmp_path / "store"))
