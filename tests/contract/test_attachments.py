"""Attachments: stored once a session beside its messages, and gone with the last message that shows them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.errors import AttachmentNotFound, Invalid, SessionNotFound, UnknownAttachment
from tenuto.model import (
    Attachment,
    Content,
    Draft,
    ForkRequest,
    Message,
    NewSession,
    Page,
    Retention,
    Rewrite,
    Scope,
    Truncation,
    attachment_part,
    text_part,
    tool_result,
)
from tenuto.model.scope import session_key
from tenuto.model.stored import Part
from tenuto.ports import Store
from tenuto.privacy.redacting_store import RedactingStore
from tests.backends import records_behind
from tests.clock import FakeClock
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE, answers, batch, begin, closing, once, says

PICTURE = Content.of(ANN, b"\x89PNG\r\n" + bytes(range(256)) * 40, "image/png", "tea.png")
OTHER = Content.of(ANN, b"other picture", "image/jpeg")
SOUND = Content.of(ANN, b"a sound", "audio/wav")


def shows(*contents: Content, brings: bool = True, **fields: Any) -> Draft:
    """A message with text and these."""
    parts = (text_part("look"), *map(attachment_part, contents))
    return says("", parts=parts, contents=contents if brings else (), **fields)


def appends(*drafts: Draft, **fields: Any) -> Any:
    return replace(batch(**fields), messages=drafts)


async def ids(store: Store, session_id: str = "s", scope: Scope = ANN) -> list[str]:
    return [one.id for one in await store.sessions.attachments(scope, session_id)]


async def seqs(store: Store, content: Content, session_id: str = "s") -> tuple[int, ...]:
    return next((one.seqs for one in await store.sessions.attachments(ANN, session_id) if one.id == content.id), ())


async def log(store: Store, session_id: str = "s") -> tuple[Message, ...]:
    return (await store.sessions.messages(ANN, session_id, Page(limit=1000))).messages


async def entries_behind(store: Store, session_id: str = "s") -> int:
    """How many attachments the backend holds."""
    behind = store.inner if isinstance(store, RedactingStore) else store
    page = await records_behind(behind).page(session_key(ANN, session_id), Part.ATTACHMENTS, 0, 2**60, 1000)
    return len(page.entries)


async def test_a_picture_that_is_sent_five_times_is_stored_once(store: Store) -> None:
    """By begin, finish and append, whole or by name alone."""
    turn = await begin(store, ANN, "s", user_messages=(shows(PICTURE, SOUND),))
    reply = (answers("", parts=(attachment_part(PICTURE),), contents=(PICTURE,)),)
    await store.sessions.finish_turn(turn, replace(closing(), reply=reply))
    await store.sessions.append(ANN, "s", appends(shows(PICTURE), shows(PICTURE), shows(PICTURE, brings=False)))

    assert await store.sessions.attachments(ANN, "s") == (
        Attachment(id=PICTURE.id, media_type="image/png", size=len(PICTURE.data), name="tea.png", seqs=(1, 2, 3, 4, 5)),
        Attachment(id=SOUND.id, media_type="audio/wav", size=7, seqs=(1,)),
    )
    assert await store.sessions.attachment(ANN, "s", PICTURE.id) == PICTURE
    assert await store.sessions.attachment(ANN, "s", SOUND.id) == SOUND
    assert await entries_behind(store) == 2
    stats = await store.upkeep.stats(ANN)
    assert (stats.attachments, stats.attachment_bytes) == (2, len(PICTURE.data) + 7)


async def test_messages_and_windows_name_attachments_and_hold_no_bytes(store: Store) -> None:
    turn = await begin(store, ANN, "s", user_messages=(shows(PICTURE),))

    (message,) = await log(store)

    part = {"type": "image", "media_type": "image/png", "attachment": PICTURE.id, "size": 10246, "name": "tea.png"}
    assert message.parts == (text_part("look"), part)
    for one in (message, *turn.user_messages, *turn.window):
        assert one.contents == ()


async def test_a_tools_output_may_show_an_attachment(store: Store) -> None:
    output = tool_result("c", [text_part("see"), attachment_part(PICTURE)])
    turn = await begin(store, ANN, "s", "draw")
    reply = (answers("", parts=(output,), contents=(PICTURE,)),)
    await store.sessions.finish_turn(turn, replace(closing(), reply=reply))

    assert await seqs(store, PICTURE) == (2,)
    session = await store.sessions.remove_attachment(ANN, "s", PICTURE.id)

    shown = {"type": "image", "media_type": "image/png", "size": len(PICTURE.data), "removed": True}
    assert (await log(store))[1].parts == (tool_result("c", [text_part("see"), shown]),)
    assert session.version == 3


async def test_another_tenant_user_or_session_has_no_such_attachment(store: Store) -> None:
    """As with messages: foreign is absent. The tenant itself sees those of its users."""
    await store.sessions.append(ANN, "s", appends(shows(PICTURE)))
    await store.sessions.append(ANN, "other", batch("hi"))
    await store.sessions.append(EVE, "s", appends(shows(Content.of(EVE, PICTURE.data, "image/png"))))

    for scope in (BOB, ANN_ELSEWHERE):
        for call in (store.sessions.attachment, store.sessions.remove_attachment):
            with pytest.raises(SessionNotFound):
                await call(scope, "s", PICTURE.id)
        with pytest.raises(SessionNotFound):
            await store.sessions.attachments(scope, "s")
    for scope, session_id in ((EVE, "s"), (ANN, "other")):
        with pytest.raises(AttachmentNotFound):
            await store.sessions.attachment(scope, session_id, PICTURE.id)
    assert await store.sessions.attachment(ACME, "s", PICTURE.id) == PICTURE
    assert await ids(store, scope=EVE) != await ids(store) == [PICTURE.id]


async def test_an_attachment_goes_with_the_last_message_that_shows_it(store: Store) -> None:
    """Cut, evicted, reset; one that a message still shows stays."""
    drafts = (shows(PICTURE), shows(OTHER), shows(PICTURE, SOUND), says("end"))
    for name in ("cut", "spared", "reset", "deleted"):
        await store.sessions.append(ANN, name, appends(*drafts))
    capped = NewSession(retention=Retention(max_messages=3))
    await store.sessions.append(ANN, "capped", appends(*drafts[:3], create=capped))

    await store.sessions.truncate(ANN, "cut", Truncation(after=2))
    await store.sessions.truncate(ANN, "spared", Truncation(after=1, keep_seqs=(3,)))
    await store.sessions.reset(ANN, "reset")
    await store.sessions.append(ANN, "capped", batch("one", "two"))
    await store.sessions.delete(ANN, "deleted")

    assert await ids(store, "cut") == [PICTURE.id, OTHER.id]
    assert (await ids(store, "spared"), await seqs(store, PICTURE, "spared")) == ([PICTURE.id, SOUND.id], (1, 3))
    assert await ids(store, "reset") == []
    assert (await ids(store, "capped"), await seqs(store, PICTURE, "capped")) == ([PICTURE.id, SOUND.id], (3,))
    assert [await entries_behind(store, name) for name in ("cut", "spared", "reset", "capped", "deleted")] == [
        2, 2, 0, 2, 0,
    ]  # fmt: skip
    await store.sessions.append(ANN, "reset", appends(shows(SOUND)))
    assert (await store.sessions.attachment(ANN, "reset", SOUND.id)).data == SOUND.data


async def test_rewritten_messages_show_what_they_name_then(store: Store) -> None:
    """What no message shows any more is gone; what was never stored cannot come with a rewriting."""
    await store.sessions.append(ANN, "s", appends(shows(PICTURE, SOUND), shows(SOUND)))
    first, second = await log(store)

    parts = (attachment_part(PICTURE), attachment_part(OTHER))
    rewriting = Rewrite(messages=(replace(first, parts=(text_part("gone"),)), replace(second, parts=parts)))
    await store.sessions.rewrite(ANN, "s", rewriting)

    assert (await ids(store), await seqs(store, PICTURE)) == ([PICTURE.id], (2,))
    marked = {"type": "image", "media_type": "image/jpeg", "size": 13, "removed": True}
    assert (await log(store))[1].parts == (attachment_part(PICTURE), marked)
    assert await entries_behind(store) == 1


async def test_a_fork_has_its_own_copies_of_what_it_shows(store: Store) -> None:
    """Those of its messages, also of a fork of a fork, and after the source is gone."""
    await store.sessions.append(ANN, "s", appends(shows(PICTURE), shows(SOUND), shows(PICTURE)))
    await store.sessions.fork(ANN, "s", ForkRequest(new_id="early", at=1))
    await store.sessions.fork(ANN, "s", ForkRequest(new_id="whole"))
    await store.sessions.delete(ANN, "s")
    await store.sessions.fork(ANN, "whole", ForkRequest(new_id="again"))
    await store.sessions.append(ANN, "again", appends(shows(OTHER)))

    assert (await ids(store, "early"), await seqs(store, PICTURE, "early")) == ([PICTURE.id], (1,))
    assert (await ids(store, "whole"), await seqs(store, PICTURE, "whole")) == ([PICTURE.id, SOUND.id], (1, 3))
    for name in ("early", "whole", "again"):
        assert await store.sessions.attachment(ANN, name, PICTURE.id) == PICTURE
    assert (await store.sessions.attachment(ANN, "again", OTHER.id)).data == OTHER.data
    assert [await entries_behind(store, name) for name in ("early", "whole", "again")] == [1, 2, 3]


async def test_a_removed_attachment_leaves_a_mark(store: Store) -> None:
    await store.sessions.append(ANN, "s", appends(shows(PICTURE, SOUND), shows(PICTURE)))
    before = await store.sessions.get(ANN, "s")

    session = await store.sessions.remove_attachment(ANN, "s", PICTURE.id)

    assert session.version == before.version + 1
    mark = {"type": "image", "media_type": "image/png", "size": len(PICTURE.data), "removed": True}
    assert [message.parts for message in await log(store)] == [
        (text_part("look"), mark, attachment_part(SOUND)), (text_part("look"), mark),
    ]  # fmt: skip
    assert await ids(store) == [SOUND.id]
    for call in (store.sessions.attachment, store.sessions.remove_attachment):
        with pytest.raises(AttachmentNotFound):
            await call(ANN, "s", PICTURE.id)
    # It may be sent again.
    await store.sessions.append(ANN, "s", appends(shows(PICTURE)))
    assert await seqs(store, PICTURE) == (3,)
    assert await store.sessions.attachment(ANN, "s", PICTURE.id) == PICTURE


async def test_a_message_may_not_name_what_is_nowhere(store: Store) -> None:
    """Nothing is stored then. An answer is stored all the same, with a mark."""
    await store.sessions.append(ANN, "s", batch("hi"))
    nowhere = shows(PICTURE, brings=False)

    with pytest.raises(UnknownAttachment):
        await store.sessions.append(ANN, "s", appends(nowhere))
    with pytest.raises(UnknownAttachment):
        await begin(store, ANN, "s", user_messages=(says("x"), nowhere))
    assert [message.text for message in await log(store)] == ["hi"]
    turn = await begin(store, ANN, "s", "question")
    await store.sessions.finish_turn(turn, replace(closing(), reply=(answers("", parts=nowhere.parts),)))

    assert (await log(store))[2].parts[1]["removed"] is True
    with pytest.raises(Invalid, match="none of its parts"):
        batch(messages=(says("x", contents=(PICTURE,)),))


async def test_a_retried_turn_stores_its_picture_once(store: Store, clock: FakeClock) -> None:
    await begin(store, ANN, "s", user_messages=(shows(PICTURE),), idempotency_key=once("k"))
    for _ in range(2):
        await store.sessions.append(ANN, "s", appends(shows(SOUND), idempotency_key=once("other")))
    clock.advance(timedelta(minutes=5))
    turn = await begin(store, ANN, "s", user_messages=(shows(PICTURE),), idempotency_key=once("k"))
    await store.sessions.finish_turn(turn, closing("a tea"))

    assert [await seqs(store, one) for one in (PICTURE, SOUND)] == [(1,), (2,)]


async def test_erased_and_expired_sessions_leave_no_attachment(store: Store, clock: FakeClock) -> None:
    hour = NewSession(retention=Retention(idle=timedelta(hours=1)))
    await store.sessions.append(ANN, "over", appends(shows(PICTURE), create=hour))
    await store.sessions.append(ANN, "s", appends(shows(PICTURE, SOUND)))
    clock.advance(timedelta(hours=2))

    with pytest.raises(SessionNotFound):
        await store.sessions.attachment(ANN, "over", PICTURE.id)
    assert (await store.upkeep.stats(ANN)).attachments == 2
    await store.sessions.append(ANN, "over", batch("anew"))
    assert await ids(store, "over") == []
    erased = await store.upkeep.erase(ANN)

    assert erased.attachments == 2
    assert [await entries_behind(store, name) for name in ("s", "over")] == [0, 0]
    assert (await store.upkeep.stats(ANN)).attachment_bytes == 0
