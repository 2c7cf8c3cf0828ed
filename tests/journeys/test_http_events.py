"""What changes in the caller's sessions, as it happens."""

from __future__ import annotations

from pathlib import Path

import pytest

import tenuto
from tenuto.llm import ScriptedModel
from tenuto.model import Changes, Scope
from tenuto.server import session_events
from tenuto.sessions import EventKind
from tests.journeys.door import ANN, EVE, at, code, playing, served

HERE = Scope(tenant="acme", user="ann")


async def test_a_second_client_is_told_what_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns and changes of one's own sessions, also by other processes in the session that is named."""
    monkeypatch.setattr(session_events, "_LOOK_EVERY", 0.01)
    store = f"sqlite:///{tmp_path / 'state.db'}"
    async with served(store=store, **playing(ScriptedModel("One.", "Two."))) as door:
        await door.http.post("/v1/chat", headers=ANN, json={"message": "hi", "session_id": "s"})
        hub: session_events.SessionEvents = door.app.state.session_events
        mine, hers = hub.follow(HERE, "s"), hub.follow(Scope(tenant="evil", user="ann"), None)
        opened = [await anext(mine), await anext(hers)]

        reply = (await door.http.post("/v1/chat", headers=ANN, json={"message": "ho", "session_id": "s"})).json()
        told = [await anext(mine) for _ in range(2)]
        async with tenuto.open(store) as elsewhere:
            await elsewhere.sessions.patch(HERE, "s", Changes(title="Elsewhere"))
            foreign = await anext(mine)
        await door.http.delete(at("s"), headers=ANN)
        gone = await anext(mine)
        await door.http.post("/v1/sessions", headers=EVE, json={"id": "e"})
        other = await anext(hers)

        monkeypatch.setattr(session_events, "_LASTS", 0.0)
        stream = await door.http.get("/v1/events", headers=ANN)
        absent = await door.http.get("/v1/events?session_id=e", headers=ANN)
        monkeypatch.setattr(session_events, "_MOST_STREAMS", 1)
        refused = await door.http.get("/v1/events", headers=ANN)

    assert opened == [session_events.Ready()] * 2
    turns = [each for each in told if isinstance(each, session_events.TurnBegun)]
    assert [(turn.session_id, turn.trace_id) for turn in turns] == [("s", reply["trace_id"])]
    changes = [each for each in told if isinstance(each, session_events.SessionChange)]
    assert "messages" in changes[-1].changed
    assert foreign == session_events.SessionChange(session_id="s", kind=EventKind.UPDATED)
    assert gone == session_events.SessionChange(session_id="s", kind=EventKind.DELETED)
    assert isinstance(other, session_events.SessionChange)
    assert other.session_id == "e"
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.text == "event: ready\ndata: {}\n\n"
    assert code(absent) == (404, "session_not_found")
    assert code(refused)[0] == 429
