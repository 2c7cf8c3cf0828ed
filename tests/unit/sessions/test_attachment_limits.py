"""Limits of attachments: size, type, number, and the bytes of an owner."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.errors import AttachmentLimit, Invalid, TenutoError, TooLarge
from tenuto.model import Content, Draft, NewSession, Scope
from tenuto.model.policy import SessionPolicy
from tenuto.sessions import AppendRequest, EventEmitter, Sessions, TurnRequest
from tenuto.sessions.transfer import ExportedSession
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ACME, ANN, BOB, closing, shows


def content(number: int, size: int = 100, media_type: str = "image/png", scope: Scope = ANN) -> Content:
    return Content.of(scope, bytes([number]) * size, media_type)


def sessions_under(store: MemoryStore, **limits: Any) -> Sessions:
    policy = SessionPolicy(**limits, busy_wait=timedelta(0))
    return Sessions(store=store.sessions, upkeep=store.upkeep, policy=policy, events=EventEmitter(clock=FakeClock()))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=FakeClock())


async def begin(sessions: Sessions, scope: Scope, *drafts: Draft, session_id: str | None = None) -> str:
    turn = await sessions.begin(scope, TurnRequest(user_messages=drafts, session_id=session_id))
    await sessions.finish(turn, closing("nice"))
    return turn.session.id


REFUSED: list[tuple[dict[str, Any], tuple[Content, ...], type[TenutoError]]] = [
    ({"max_attachment_bytes": 99}, (content(1),), TooLarge),
    ({"max_attachment_bytes": 0}, (content(1, 1),), TooLarge),
    ({"attachment_types": "image/*, application/pdf"}, (content(1, media_type="text/plain"),), Invalid),
    ({"attachment_types": "image/jpeg"}, (content(1),), Invalid),
    ({"max_attachments": 2}, (content(1), content(2), content(3)), AttachmentLimit),
    ({"user_attachment_bytes": 299}, (content(1), content(2), content(3)), AttachmentLimit),
]


@pytest.mark.parametrize(("limits", "contents", "error"), REFUSED)
async def test_what_is_beyond_a_limit_is_refused_at_every_entrance(
    store: MemoryStore, limits: dict[str, Any], contents: tuple[Content, ...], error: type[TenutoError]
) -> None:
    sessions, draft = sessions_under(store, **limits), shows(*contents)
    session, _ = await sessions.create(ANN)
    saved = ExportedSession(new=NewSession(), messages=(draft,))

    for call in (
        sessions.begin(ANN, TurnRequest(user_messages=(draft,), session_id=session.id)),
        sessions.begin(ANN, TurnRequest(user_messages=(draft,))),
        sessions.append(ANN, session.id, AppendRequest(messages=(draft,))),
        sessions.restore(ANN, saved),
    ):
        with pytest.raises(error):
            await call

    stats = await sessions.stats(ANN)
    assert (stats.messages, stats.attachments) == (0, 0)


async def test_what_is_within_the_limits_is_taken(store: MemoryStore) -> None:
    limits = {"max_attachment_bytes": 100, "max_attachments": 2, "user_attachment_bytes": 200}
    sessions = sessions_under(store, **limits, attachment_types="image/*, application/pdf")
    first, second = content(1), content(2, media_type="application/pdf; version=2")

    session_id = await begin(sessions, ANN, shows(first, second))
    # What is stored already is no more.
    await begin(sessions, ANN, shows(first, second), session_id=session_id)

    assert [one.size for one in await sessions.attachments(ANN, session_id)] == [100, 100]
    assert await sessions.attachment(ANN, session_id, first.id) == first


async def test_bytes_count_for_the_owner_of_the_session(store: MemoryStore) -> None:
    """Of every sender, in all of the owner's sessions; what was removed makes room."""
    sessions = sessions_under(store, user_attachment_bytes=200)
    anns = await begin(sessions, ANN, shows(content(1)))
    bobs = await begin(sessions, BOB, shows(content(1)))
    await begin(sessions, ANN, shows(content(1)))

    for scope in (ANN, ACME):
        with pytest.raises(AttachmentLimit, match="user_attachment_bytes"):
            await begin(sessions, scope, shows(content(2)), session_id=anns)
    await begin(sessions, ACME, shows(content(2)), session_id=bobs)
    await sessions.remove_attachment(ANN, anns, content(1).id)
    await begin(sessions, ANN, shows(content(2)), session_id=anns)

    assert (await sessions.stats(ANN)).attachment_bytes == 200


async def test_an_answer_is_refused_by_its_size_alone(store: MemoryStore) -> None:
    sessions = sessions_under(store, max_attachments=1, attachment_types="image/*", max_attachment_bytes=500)
    turn = await sessions.begin(ANN, TurnRequest(user_messages=(shows(content(1)),)))
    large, small = content(2, 501, "audio/wav"), content(3, 500, "audio/wav")

    with pytest.raises(TooLarge):
        await sessions.finish(turn, replace(closing(), reply=(shows(large),)))
    await sessions.finish(turn, replace(closing(), reply=(shows(small),)))

    assert len(await sessions.attachments(ANN, turn.session.id)) == 2
