"""Whatever app is used, its chat is one session: as the app shows it, through edits, stops and restarts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.apps import (
    EXAMPLES,
    STOPPED_WORDS,
    TITLE,
    Aider,
    ChatApp,
    ClaudeCode,
    Codex,
    Kind,
    LibreChat,
    Line,
    Llm,
    OpenCode,
    OpenWebUI,
    Pi,
    Refused,
    Script,
)
from tests.apps.coding_apps import FILE, READ
from tests.journeys.app_server import AppServer, app_server, sent_by, shown_by, shown_to_model

NAMED: list[type[ChatApp]] = [OpenWebUI, LibreChat, Codex, ClaudeCode, OpenCode, Pi, Script]
HOME, ASKED = "I live in Ulm.", "Where do I live?"


def named(app: type[ChatApp]) -> str:
    return app.name


async def agree(server: AppServer, app: ChatApp) -> Any:
    """The one session of the chat has the messages that the app shows, and the newest prompt had what it sent."""
    (session,) = await server.sessions(app.user)
    assert await server.talk(session["id"], app.user) == shown_by(app)
    assert shown_to_model(server.model.requests[-1]) == sent_by(app.sent[-1])
    return session


@pytest.mark.parametrize("kind", NAMED, ids=named)
async def test_a_chat_of_ten_turns_is_one_session(kind: type[ChatApp], tmp_path: Path) -> None:
    """With its title asked for first, tools, a picture, a stop, another answer, a restart and an edit."""
    store = f"sqlite:///{tmp_path / 'chats.db'}"
    async with app_server(store=store) as server:
        app = await server.open(kind)
        if kind.has_title:
            await app.title()
        await app.ask(HOME)
        await agree(server, app)
        if kind.tools:
            await app.ask("Please use the tool.")
            await agree(server, app)
        await app.ask("What is in the picture?", picture=True)
        await agree(server, app)
        assert "image" in {part["type"] for part in server.model.requests[-1].messages[-1].parts}
        heard = await app.stop("Count to forty.", after=STOPPED_WORDS[-1])
        assert heard == "".join(STOPPED_WORDS)
        await app.ask("Go on, please.")
        await agree(server, app)
        if kind.has_regenerate:
            await app.regenerate()
            await agree(server, app)
        await server.service.tenuto.upkeep.drain()
        asked = len(server.model.requests)
        own = len(server.model.task_requests) - app.tasks

    async with app_server(store=store) as again:
        app.base_url = again.base_url
        app.key = (await again.open(kind)).key
        await app.ask("After the restart.")
        await agree(again, app)
        if kind.has_edit:
            await app.edit(0, "I live in Bonn.")
            await agree(again, app)
        await app.ask("And now?")
        session = await agree(again, app)
        await again.service.tenuto.upkeep.drain()
        own += len(again.model.task_requests)

    assert asked <= app.turns + 3
    assert own <= 2
    assert session["title"] not in ("", "### Task:")


@pytest.mark.parametrize("kind", [OpenWebUI, ClaudeCode, OpenCode], ids=named)
async def test_tasks_of_an_app_leave_no_trace_in_its_chat(kind: type[ChatApp]) -> None:
    """The title is asked for before, beside and after the first question, under the id of the chat."""
    async with app_server() as server:
        app = await server.open(kind)
        assert TITLE in await app.title()
        assert app.headers.get("tenuto-app-task"), "the response says what it was"
        assert await server.sessions(app.user) == []
        titled = asyncio.create_task((await server.open(kind)).title())
        await app.ask(HOME)
        assert TITLE in await titled
        await app.title()
        await app.ask("Thanks.")
        session = await agree(server, app)
        await server.service.tenuto.upkeep.drain()
        (session,) = await server.sessions(app.user)

    assert (session["turns"], session["message_count"]) == (2, 4)
    assert "### Task" not in session["title"]
    assert len(server.model.task_requests) - 3 <= 2, "what the server asks for itself"


@pytest.mark.parametrize("kind", [Codex, ClaudeCode, OpenCode], ids=named)
async def test_a_compaction_of_the_app_goes_on_in_the_same_session(kind: type[ChatApp]) -> None:
    """Nothing that was said is lost; prompts have what the app sends."""
    async with app_server() as server:
        app = await server.open(kind)
        for text in (HOME, "Please use the tool.", "And then?"):
            await app.ask(text)
        before = shown_by(app)
        (session,) = await server.sessions(app.user)
        await app.compact()
        assert await server.talk(session["id"], app.user) == before
        for text in ("What did we say?", "Go on."):
            await app.ask(text)
            assert shown_to_model(server.model.requests[-1]) == sent_by(app.sent[-1])
        (session,) = await server.sessions(app.user)
        talk = await server.talk(session["id"], app.user)

    assert talk[: len(before)] == before
    assert talk[-4:] == shown_by(app)[-4:]


@pytest.mark.parametrize("kind", [Codex, ClaudeCode], ids=named)
async def test_a_summary_of_the_app_is_not_remembered_as_said_by_its_user(kind: type[ChatApp]) -> None:
    async with app_server() as server:
        app = await server.open(kind)
        app.model = "helper"
        await app.ask(HOME)
        await app.compact()
        app.lines[-1] = replace(app.lines[-1], text=f"{app.lines[-1].text}\n\nI live in Bonn since March.")
        await app.ask("I like tea with milk.")
        await server.service.tenuto.upkeep.drain()
        memories = (await server.get("/v1/memories"))["memories"]

    assert {memory["text"] for memory in memories} == {HOME, "I like tea with milk."}


@pytest.mark.parametrize("kind", NAMED, ids=named)
async def test_what_was_said_in_one_chat_is_known_in_the_next(kind: type[ChatApp]) -> None:
    """To its user alone: another one under the same id gets a chat of their own, and remembers nothing."""
    async with app_server() as server:
        app = await server.open(kind)
        app.model = "helper"
        await app.ask(HOME)
        await app.ask("I like tea with milk.")
        await server.service.tenuto.upkeep.drain()
        for who, chat, knows in (("ann", "chat-2", True), ("bob", "chat-1", False), ("bob", "chat-3", False)):
            other = await server.open(kind, who, chat)
            other.model = "helper"
            await other.ask(ASKED)
            words = "".join(message.text for message in server.model.requests[-1].messages)
            assert ("Ulm" in words) is knows, (who, chat)
        lists = [await server.sessions(who) for who in ("ann", "bob")]

    assert [len(sessions) for sessions in lists] == [2, 2]
    assert not {session["id"] for session in lists[0]} & {session["id"] for session in lists[1]}


@pytest.mark.parametrize("kind", [OpenWebUI, ClaudeCode, Script], ids=named)
async def test_what_an_edit_takes_back_is_not_remembered(kind: type[ChatApp]) -> None:
    """Not even in the prompt of the turn that edits, before its memory is removed."""
    async with app_server() as server:
        app = await server.open(kind)
        app.model = "helper"
        await app.ask(HOME)
        await app.ask("Thanks.")
        await server.service.tenuto.upkeep.drain()
        await app.edit(0, ASKED)
        edited = "".join(message.text for message in server.model.requests[-1].messages)
        await server.service.tenuto.upkeep.drain()
        memories = (await server.get("/v1/memories"))["memories"]

    assert "Ulm" not in edited
    assert memories == []


@pytest.mark.parametrize("kind", [OpenWebUI, LibreChat, ClaudeCode, OpenCode, Pi, Script], ids=named)
async def test_of_a_stopped_answer_the_session_has_what_the_app_received(kind: type[ChatApp]) -> None:
    """The server said more than had arrived when the connection was closed."""
    async with app_server() as server:
        app = await server.open(kind)
        await app.ask(HOME)
        await app.stop("Count to forty.", after=STOPPED_WORDS[-1])
        received = "".join(STOPPED_WORDS[:2])
        app.lines[-1] = replace(app.lines[-1], text=received)
        await app.ask("Go on, please.")

        await agree(server, app)


@pytest.mark.parametrize("kind", NAMED, ids=named)
async def test_the_same_words_twice_are_two_questions(kind: type[ChatApp]) -> None:
    async with app_server() as server:
        app = await server.open(kind)
        for text in (HOME, "Go on.", "Go on.", "Go on."):
            await app.ask(text)
            await agree(server, app)

    assert len(app.lines) == 8


async def test_two_apps_with_one_id_have_two_chats() -> None:
    async with app_server() as server:
        apps = [await server.open(kind) for kind in (Codex, ClaudeCode, OpenCode, Pi)]
        for app in apps:
            await app.ask(f"I am {app.name}.")
        for app in apps:
            await app.ask("Who am I?")
            assert shown_to_model(server.model.requests[-1]) == sent_by(app.sent[-1])

        assert len(await server.sessions()) == len(apps)


@pytest.mark.parametrize("kind", [OpenWebUI, Script], ids=named)
async def test_a_long_chat_that_comes_at_once_is_stored_once(kind: type[ChatApp]) -> None:
    """A chat that began elsewhere: all of it becomes the session's."""
    async with app_server(max_messages=3_000) as server:
        app = await server.open(kind)
        for number in range(500):
            app.lines.append(Line(kind=Kind.QUESTION, text=f"Question {number}?"))
            app.lines.append(Line(kind=Kind.ANSWER, text=f"Reply {number}."))
        await app.ask("And now?")
        await app.ask("And then?")
        (session,) = await server.sessions()

        assert await server.talk(session["id"]) == shown_by(app)
        assert len(app.lines) == 1_004


async def test_what_was_found_in_a_document_is_no_word_of_its_user() -> None:
    """open-webui writes it into the newest question, behind a call of a tool as a message of its own."""
    async with app_server() as server:
        app = await server.open(OpenWebUI)
        assert isinstance(app, OpenWebUI)
        app.model, app.document = "helper", "I live in Ulm, says the heron."
        for text in ("Which bird?", "Please use the tool.", "And now?"):
            await app.ask(text)
            await agree(server, app)
            assert app.headers["tenuto-history"] in ("new", "continued")
            (instructions, *_) = server.model.requests[-1].messages
            assert app.document in instructions.text
        await server.service.tenuto.upkeep.drain()
        (session,) = await server.sessions()
        memories = (await server.get("/v1/memories"))["memories"]

    assert "### Task" not in session["title"]
    assert memories == []


async def test_files_that_opencode_reads_are_no_words_of_its_user() -> None:
    async with app_server() as server:
        app = await server.open(OpenCode)
        assert isinstance(app, OpenCode)
        app.model, app.reads_pictures = "helper", True
        attached = (READ.format("note.txt"), FILE.format("note.txt", "I live in Ulm, says the heron."))
        app.lines.append(Line(kind=Kind.QUESTION, text="Which bird?", before=attached))
        for text in ("In one word.", "Please use the tool.", "What is in the picture?"):
            await app.ask(text, picture="picture" in text)
            await agree(server, app)
        await server.service.tenuto.upkeep.drain()
        memories = (await server.get("/v1/memories"))["memories"]
        (instructions, *_) = server.model.requests[-1].messages

    assert "says the heron" in instructions.text
    assert memories == []


async def test_an_answer_that_goes_on_is_one_answer() -> None:
    """Continue, as open-webui has it: what follows is one message with the answer, shown and sent so."""
    async with app_server() as server:
        app = await server.open(OpenWebUI)
        assert isinstance(app, OpenWebUI)
        await app.ask(HOME)
        await app.continue_answer()
        await app.ask("Thanks.")

        await agree(server, app)


async def test_a_subagent_does_not_speak_in_the_chat_of_its_parent() -> None:
    """codex and Claude Code send it under the ids of the parent."""
    async with app_server() as server:
        for kind, mark in ((Codex, "x-openai-subagent"), (ClaudeCode, "x-claude-code-agent-id")):
            app = await server.open(kind)
            await app.ask(HOME)
            subagent = await server.open(kind)
            ids = {**app.ids(), mark: "agent-1"}
            if kind is Codex:
                ids["thread-id"] = "thread-of-its-own"
            subagent.ids = lambda ids=ids: ids  # type: ignore[method-assign, misc]
            await subagent.ask("Look around.")
            await app.ask("Thanks.")
            assert shown_to_model(server.model.requests[-1]) == sent_by(app.sent[-1])
            said = [await server.talk(session["id"]) for session in await server.sessions()]
            assert shown_by(app) in said
            assert not [talk for talk in said if ("user", "Look around.") in talk]


async def test_a_chat_without_any_id_is_found_by_its_history() -> None:
    """A first message alone is a new chat, and so is what another user sends."""
    async with app_server(apps=None, sessions_by_history=timedelta(days=1)) as server:
        first, second = await server.open(Llm), await server.open(Llm)
        for app in (first, second):
            await app.ask(HOME)
            await app.ask("Please use the tool.")
        await first.ask("And now?")
        await second.ask("What is in the picture?", picture=True)
        talks = [await server.talk(session["id"]) for session in await server.sessions()]
        assert talks == [shown_by(second), shown_by(first)]
        copied = await server.open(Llm, "bob")
        copied.lines = list(first.lines)
        await copied.ask("What did I say?")

        assert [await server.talk(session["id"]) for session in await server.sessions()] == talks
        (session,) = await server.sessions("bob")
        assert await server.talk(session["id"], "bob") == shown_by(copied)


async def test_aider_has_all_of_its_talk_in_its_newest_session() -> None:
    """It takes its rules out of questions that are old, so none of its turns is found again; nothing is mixed."""
    async with app_server(apps=None, sessions_by_history=timedelta(days=1)) as server:
        first, second = await server.open(Aider), await server.open(Aider)
        for text in (HOME, "And now?"):
            await first.ask(text)
        await second.ask("Who am I?")
        talks = [await server.talk(session["id"]) for session in await server.sessions()]

    before = len(EXAMPLES)
    assert [len(talk) - before for talk in talks] == [2, 4, 2]
    assert [text for _, text in talks[1][before:]][:2] == [HOME, "Answer 1 is this."]
    assert HOME not in str(talks[0])


@pytest.mark.parametrize("chat", ["local:5d1f", "{{CHAT_ID}}"])
async def test_a_temporary_chat_has_no_session(chat: str) -> None:
    async with app_server() as server:
        app = await server.open(OpenWebUI, chat=chat)
        await app.ask(HOME)
        await app.ask("Go on.")

        assert shown_to_model(server.model.requests[-1]) == sent_by(app.sent[-1])
        assert await server.sessions() == []


async def test_a_fork_of_a_thread_is_a_session_of_its_own() -> None:
    """codex gives it an id of its own, and sends what both have in common."""
    async with app_server() as server:
        app = await server.open(Codex)
        await app.ask(HOME)
        await app.ask("And now?")
        fork = await server.open(Codex, chat="chat-2")
        fork.lines = app.lines[:2]
        await fork.ask("Something else.")
        talks = [await server.talk(session["id"]) for session in await server.sessions()]

        assert talks == [shown_by(fork), shown_by(app)]


@pytest.mark.parametrize("kind", [Llm, Script], ids=named)
async def test_without_the_setting_a_chat_is_answered_and_not_stored(kind: type[ChatApp]) -> None:
    """Without the setting no id of an app counts; a session is made by our own header alone."""
    async with app_server(apps=None) as server:
        app = await server.open(kind)
        await app.ask(HOME)
        await app.ask("Please use the tool.")

        assert shown_to_model(server.model.requests[-1]) == sent_by(app.sent[-1])
        assert len(await server.sessions()) == (kind is Script)


@pytest.mark.parametrize("kind", [OpenWebUI, ClaudeCode, Codex], ids=named)
async def test_ids_of_another_tenant_name_nothing(kind: type[ChatApp]) -> None:
    """Neither the chat's id as the app has it nor that of the session leads to it."""
    async with app_server() as server:
        app = await server.open(kind)
        await app.ask(HOME)
        (session,) = await server.sessions()
        _, secret = await server.service.keys.create(tenant="evil", user=None if kind.names_user else "ann")
        for chat, named_by in ((app.chat, {}), (app.chat, {"Tenuto-Session": session["id"]})):
            other = kind(server.base_url, chat, key=secret)
            ids = {**other.ids(), **named_by}
            other.ids = lambda ids=ids: ids  # type: ignore[method-assign, misc]
            await other.ask(ASKED)
            words = "".join(message.text for message in server.model.requests[-1].messages)
            assert "Ulm" not in words

        assert await server.talk(session["id"]) == shown_by(app)


@pytest.mark.parametrize("kind", NAMED, ids=named)
async def test_a_history_that_contradicts_itself_is_refused_or_taken_whole(kind: type[ChatApp]) -> None:
    """An output without its call, and a call without its output: nothing that was stored is lost or mixed."""
    async with app_server() as server:
        app = await server.open(kind)
        await app.ask(HOME)
        before = shown_by(app)
        (session,) = await server.sessions()
        kept = list(app.lines)
        for odd in (
            Line(kind=Kind.OUTPUT, text="from nowhere", id="call_nowhere"),
            Line(kind=Kind.CALL, text="{}", id="call_open", tool="date"),
        ):
            app.lines = [*kept, odd]
            refused: list[int] = []
            try:
                await app.ask("And now?")
            except Refused as error:
                refused.append(error.status)
            assert refused in ([], [400])
            assert (await server.talk(session["id"]))[: len(before)] == before
        app.lines = kept
        await app.ask("Are you there?")

        assert await server.talk(session["id"]) == shown_by(app)
