"""Session and memory services of the Agent Development Kit: state by prefix, stale writers, filters, recall."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import tenuto
from tenuto.client.api import TenutoApi
from tenuto.errors import Invalid, SessionNotFound
from tenuto.sessions import TurnRequest
from tests.journeys.http_service import BASE, http_service
from tests.samples import ANN

if TYPE_CHECKING:
    from google.adk.events import Event


def event(text: str, **fields: Any) -> Event:
    from google.adk.events import Event
    from google.genai import types

    return Event(author="user", content=types.Content(role="user", parts=[types.Part(text=text)]), **fields)


def place(user: str = "ann", session: str = "s", app: str = "shop") -> dict[str, Any]:
    return {"app_name": app, "user_id": user, "session_id": session}


async def test_state_is_shared_by_its_prefix_and_stale_writers_are_refused() -> None:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events import EventActions
    from google.adk.sessions.base_session_service import GetSessionConfig

    from tenuto.integrations.adk import TenutoSessionService

    async with tenuto.open("memory://") as app:
        service = TenutoSessionService(app, tenant="acme")
        given: dict[str, Any] = {"own": 1, "nested": [], "user:tone": "warm", "temp:x": 0}
        first = await service.create_session(**place(session=" s "), state=given)
        stale = await service.get_session(**place())
        assert stale == first
        assert stale is not None
        # What an agent does to its copy is its own affair.
        stale.state["nested"].append("changed")
        delta = {"own": None, "app:sale": True, "user:tone": "cool", "temp:x": 1}
        stored = event("one", timestamp=1.0, actions=EventActions(state_delta=delta))
        await service.append_event(first, stored)
        assert first.state == {"nested": [], **delta}
        assert await service.append_event(first, event("never", partial=True)) not in first.events
        await service.append_event(first, event("two", timestamp=2.0))
        read = await service.get_session(**place())

        assert read is not None
        assert read.last_update_time == 2.0
        assert read.state == {"own": None, "nested": [], "app:sale": True, "user:tone": "cool"}
        assert read.events == first.events
        assert "temp:x" not in read.events[0].actions.state_delta
        with pytest.raises(StaleSessionError):
            await service.append_event(stale, event("late"))
        # Delivered again, as by a caller that lost the answer.
        await service.append_event(read, read.events[1].model_copy(deep=True))
        for user, state in (("ann", {"app:sale": True, "user:tone": "cool"}), ("bob", {"app:sale": True})):
            other = await service.create_session(**place(user, "s" if user == "bob" else "t"))
            assert other.state == state
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**place("bob"), state={"other": 1})
        assert await service.get_user_state(app_name="shop", user_id="ann") == {"tone": "cool"}
        assert (await service.create_session(**place(app="lab"))).state == {}
        for config, texts in (
            ({"num_recent_events": 1}, ["two"]), ({"num_recent_events": 0}, []), ({"after_timestamp": 1.5}, ["two"]),
            ({"num_recent_events": 2, "after_timestamp": 1.0}, ["one", "two"]),
        ):  # fmt: skip
            some = await service.get_session(**place(), config=GetSessionConfig(**config))
            assert some is not None
            assert [one.content.parts[0].text for one in some.events] == texts
        listed = (await service.list_sessions(app_name="shop")).sessions
        assert [(one.user_id, one.id, one.events) for one in listed] == [
            ("ann", "s", []), ("ann", "t", []), ("bob", "s", []),
        ]  # fmt: skip
        await service.delete_session(**place())
        assert await service.get_session(**place()) is None
        with pytest.raises(SessionNotFoundError):
            await service.append_event(read, event("gone"))
        with pytest.raises(SessionNotFound):
            await app.sessions.get(ANN, "s")
        # Bob's has another id, since that of the name was taken when it was made.
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**place("bob"))


@pytest.mark.requirement("T3")
async def test_a_writer_kept_out_by_others_is_told_that_it_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a lease that others hold longer than it waits, or one that it loses; here and over HTTP."""
    from google.adk.errors import StaleSessionError

    from tenuto.integrations.adk import TenutoSessionService, sessions

    async def be_kept_out(app: TenutoApi) -> None:
        service, scope = TenutoSessionService(app, tenant="acme"), app.scope(tenant="acme", site="shop", user="ann")
        session = await service.create_session(**place())
        other = await app.begin_turn(scope, TurnRequest(session_id="s"))
        with pytest.raises(StaleSessionError):
            await service.append_event(session, event("busy"))
        await app.abandon(other)
        monkeypatch.setattr(sessions, "_merge_shared_state", lambda *_: app.sessions.reset(scope, "s"))
        with pytest.raises(StaleSessionError):
            await service.append_event(session, event("lost"))
        monkeypatch.undo()

    no_wait = timedelta(0)
    async with tenuto.open("memory://", busy_wait=no_wait) as local, http_service(busy_wait=no_wait) as server:
        _, key = await server.keys.create(tenant="acme")
        async with tenuto.connect(BASE, key, transport=httpx.ASGITransport(server.app)) as remote:
            await be_kept_out(local)
            await be_kept_out(remote)


async def test_a_server_makes_no_session_but_the_one_asked_for() -> None:
    """Neither for the event of a session that is gone, whatever its policy, nor with state that it cannot keep."""
    from google.adk.errors.session_not_found_error import SessionNotFoundError

    from tenuto.integrations.adk import TenutoSessionService

    async with http_service(on_missing="new_id") as server:
        _, key = await server.keys.create(tenant="acme")
        async with tenuto.connect(BASE, key, transport=httpx.ASGITransport(server.app)) as client:
            service = TenutoSessionService(client, tenant="acme")
            with pytest.raises(Invalid):
                await service.create_session(**place(), state={"user:tone": "warm"})
            session = await service.create_session(**place())
            await service.append_event(session, event("one"))
            await service.delete_session(**place())
            with pytest.raises(SessionNotFoundError):
                await service.append_event(session, event("gone"))
            assert (await client.sessions.list(client.scope(site="shop"))).sessions == ()


async def test_events_are_remembered_until_they_are_forgotten_or_their_user_is_erased() -> None:
    from tenuto.integrations.adk import TenutoMemoryService, TenutoSessionService

    async with tenuto.open("memory://") as app:
        sessions, memories = TenutoSessionService(app), TenutoMemoryService(app)
        session = await sessions.create_session(**place(), state={"user:tone": "warm"})
        for text in ("My cat is called Mia.", "The shop opens at nine."):
            await sessions.append_event(session, event(text))
        for _ in range(2):
            await memories.add_session_to_memory(session)

        asked: dict[str, Any] = {"app_name": "shop", "query": "What is my cat called, and is the shop open?"}
        found = (await memories.search_memory(user_id="ann", **asked)).memories
        assert {one.id: one.content.parts[0].text for one in found} == {
            one.id: one.content.parts[0].text for one in session.events
        }
        assert {one.author for one in found} == {"user"}
        assert (await memories.search_memory(user_id="bob", **asked)).memories == []
        await memories.delete_memory(app_name="shop", user_id="ann", memory_id=session.events[0].id)
        left = (await memories.search_memory(user_id="ann", **asked)).memories
        assert "Mia" not in str(left)
        assert left
        await app.privacy.erase(app.scope(user="ann"), by="test")
        gone = (await memories.search_memory(user_id="ann", **asked)).memories
        state = await sessions.get_user_state(app_name="shop", user_id="ann")
        assert (await sessions.get_session(**place()), state, gone) == (None, {}, [])
