"""What every adapter promises, whatever its framework: issue 19, item 5."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from msgspec.structs import replace

import tenuto
from tenuto.errors import TenutoError
from tenuto.integrations.embedded_media import EmbeddedMedia
from tenuto.integrations.event_loops import LoopBridge, find_bridge
from tests.attachments import PNG, base64, png
from tests.integrations.bridge_refusals import nothing, refuses_because
from tests.integrations.conversations import ADAPTERS, IN_PROCESS, NAMED, PIXEL, open_talk
from tests.journeys.http_service import BASE, http_service
from tests.samples import ANN, BOB, EVE

WRITERS: Final = 16
EACH: Final = 2
WITH_PICTURES: Final = ("pydantic_ai", "adk", "llama_index", "agent_framework")
URL_SAFE, STANDARD = str.maketrans("+/", "-_"), str.maketrans("-_", "+/")
ENCODED: Final = base64(PIXEL)
WITHOUT_CLEAR: Final = ("agent_framework",)
every_adapter = pytest.mark.parametrize("name", ADAPTERS)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'chat.db'}"


def spoil(value: Any) -> None:
    """Change everything that can be changed inside a value."""
    if isinstance(value, dict):
        for inner in value.values():
            spoil(inner)
        value["spoilt"] = True
    elif isinstance(value, list):
        for inner in value:
            spoil(inner)
        value.append("spoilt")
    elif hasattr(value, "__dict__") and not isinstance(value, Enum):
        for inner in vars(value).values():
            spoil(inner)


@pytest.mark.requirement("T19")
@every_adapter
async def test_messages_of_all_kinds_come_back_equal_to_their_owner_alone(name: str, url: str) -> None:
    """After a restart and whatever a reader did to them; equal names of two users or tenants do not meet.

    The limit of messages is for sessions that tenuto itself reads: a framework needs its calls with their results.
    """
    async with tenuto.open(url, max_messages=2) as app:
        ann = open_talk(name, app, ANN, "s")
        await ann.store(ann.kinds)
        spoil(await ann.read())
        assert await ann.read() == ann.kinds
    async with tenuto.open(url) as app:
        assert await open_talk(name, app, ANN, "s").read() == ann.kinds
        for other in (BOB, EVE):
            assert await open_talk(name, app, other, "s").read() == []
            await open_talk(name, app, other, "s").add(f"{other.user} of {other.tenant}")
            assert await open_talk(name, app, other, "s").texts() == [f"{other.user} of {other.tenant}"]
        again = open_talk(name, app, ANN, "s")
        assert await again.read() == ann.kinds
        if name not in WITHOUT_CLEAR:
            await again.clear()
            assert await again.read() == []
            await again.add("anew")
            assert await again.texts() == ["anew"]
        assert await open_talk(name, app, BOB, "s").texts() == ["bob of acme"]


@pytest.mark.parametrize("name", WITH_PICTURES)
async def test_a_picture_is_stored_once_beside_messages_and_can_be_removed(name: str, url: str) -> None:
    """Its bytes are in no message, and without it the conversation is still read."""
    async with http_service(store=url) as service:
        _, key = await service.keys.create(tenant="acme")
        async with tenuto.connect(BASE, key, transport=httpx.ASGITransport(service.app)) as client:
            for app, conversation in ((service.tenuto, "here"), (client, "there")):
                talk = open_talk(name, app, ANN, conversation)
                await talk.store(talk.kinds)
                assert await talk.read() == talk.kinds
        sessions, scope = service.tenuto.sessions, replace(ANN, site="shop") if name == "adk" else ANN
        for session in (await sessions.list(scope)).sessions:
            (attachment,) = await sessions.attachments(scope, session.id)
            assert (await sessions.attachment(scope, session.id, attachment.id)).data == PIXEL
            page = await sessions.messages(scope, session.id)
            shown = [part for message in page.messages for part in message.parts if "attachment" in part]
            assert [part["type"] for part in shown] == ["image"]
            # A signature of a thought has the same bytes, and is no picture.
            parts = [part for message in page.messages for part in message.parts if "thought" not in str(part)]
            assert not any(ENCODED[:-2] in str(part).translate(STANDARD) for part in parts)
            await sessions.remove_attachment(scope, session.id, attachment.id)
        for conversation in ("here", "there"):
            assert await open_talk(name, service.tenuto, ANN, conversation).read()
        sessions.policy = replace(sessions.policy, max_attachments=0)
        refused = open_talk(name, service.tenuto, ANN, "none")
        with pytest.raises(TenutoError, match="max_attachments"):
            await refused.store(refused.kinds)


@pytest.mark.parametrize(
    "data",
    ["not base64!", "", base64(b"<svg onload='x'/>"), base64(PNG)[:-2], base64(b"\xfb\xff\xfe").replace("+", "-")],
    ids=("text", "empty", "script", "cut", "other-alphabet"),
)
def test_what_is_no_content_stays_in_its_element(data: str) -> None:
    media = EmbeddedMedia(("data", "mime"))
    element = {"inner": [{"data": data, "mime": "image/svg+xml"}]}

    assert media.take_out(element) == [element]


@pytest.mark.parametrize(("url_safe", "head"), [(True, ""), (False, ""), (False, "data:image/png;base64,")])
def test_contents_come_back_to_their_places(url_safe: bool, head: str) -> None:
    media = EmbeddedMedia(("data", "mime"), url_safe=url_safe)
    encoded = [head + base64(data).translate(URL_SAFE if url_safe else {}) for data in (PNG, png(1))]
    element = {"a": [{"data": one, "mime": "image/png", "more": 1} for one in encoded], "data": "of no type"}

    emptied, *parts = media.take_out(element)

    assert [part["data"] for part in parts] == [base64(PNG), base64(png(1))]
    assert [one["data"] for one in emptied["a"]] == [head, head]
    assert media.join([{"type": "x", "x": emptied}, *parts], lambda part: part["x"]) == [element]


@pytest.mark.requirement("A25")
@pytest.mark.parametrize("name", [name for name in ADAPTERS if name not in NAMED])
async def test_a_caller_without_a_name_has_no_session_of_a_user(name: str) -> None:
    """Neither to read, to add to nor to clear; the tenant itself has to be named as the scope."""
    async with tenuto.open("memory://") as app:
        ann, unnamed, tenant = (
            open_talk(name, app, scope, "s") for scope in (app.scope(user="ann"), None, app.scope())
        )
        await ann.add("of ann")
        assert await unnamed.read() == []
        await unnamed.add("of none")
        assert await unnamed.texts() == ["of none"]
        assert await open_talk(name, app, None, "s").texts() == ["of none"]
        if name not in WITHOUT_CLEAR:
            await unnamed.clear()
            assert await unnamed.read() == []
        assert await ann.texts() == await tenant.texts() == ["of ann"]


async def test_over_http_adapters_do_the_same() -> None:
    """Each adapter takes what `tenuto.connect` gives; equal names of two users are two conversations there, too."""
    async with http_service() as service:
        _, key = await service.keys.create(tenant="acme")
        async with tenuto.connect(BASE, key, transport=httpx.ASGITransport(service.app)) as client:
            for name in (name for name in ADAPTERS if name not in IN_PROCESS):
                ann, bob = (open_talk(name, client, client.scope(user=user), name) for user in ("ann", "bob"))
                await ann.store(ann.kinds)
                await bob.add("of bob")
                assert await ann.read() == ann.kinds
                assert await bob.texts() == ["of bob"]
                if name not in WITHOUT_CLEAR:
                    await ann.clear()
                    assert await ann.read() == []


@pytest.mark.requirement("T3")
@every_adapter
async def test_sixteen_writers_on_one_conversation_lose_nothing(name: str, url: str) -> None:
    """The order of each writer is kept; a cancelled call has settled when it returns."""

    async def write(app: tenuto.Tenuto, writer: int) -> None:
        talk = open_talk(name, app, ANN, "s")
        for number in range(EACH):
            await talk.add(f"{writer}.{number}")

    async with tenuto.open(url) as app:
        await asyncio.gather(*(write(app, writer) for writer in range(WRITERS)))
        said = await open_talk(name, app, ANN, "s").texts()

        assert sorted(said) == sorted(f"{writer}.{number}" for writer in range(WRITERS) for number in range(EACH))
        for writer in range(WRITERS):
            assert [text for text in said if text.startswith(f"{writer}.")] == [f"{writer}.{n}" for n in range(EACH)]

        cancelled = asyncio.create_task(open_talk(name, app, ANN, "s").add("late"))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        # Settled either way: nothing is written once the cancellation has arrived.
        settled = await open_talk(name, app, ANN, "s").texts()
        await open_talk(name, app, ANN, "s").add("last")
        assert await open_talk(name, app, ANN, "s").texts() == [*settled, "last"]


FORKING: Final = """
import asyncio, os, sys, threading
import tenuto
from tenuto.errors import Invalid
from tenuto.integrations.event_loops import find_bridge
from tests.integrations.bridge_refusals import refuses_because

async def count(app):
    return 7

def child(act):
    if os.fork() == 0:
        os._exit(act())
    return os.waitstatus_to_exitcode(os.wait()[1])

used, fresh, memory = find_bridge(sys.argv[1]), find_bridge(sys.argv[1] + "2"), find_bridge("memory://")
used.wait(count), memory.wait(count)

async def main():
    async with tenuto.open("memory://") as app:
        opened = find_bridge(app)
        return await asyncio.to_thread(child, lambda: (
            8 * refuses_because(opened, "forked") + 4 * refuses_because(used, "forked")
            + memory.wait(count) - fresh.wait(count)))

print(asyncio.run(main()), used.wait(count))
"""


async def test_adapters_outlive_forks_failed_openings_and_second_closes(tmp_path: Path) -> None:
    """A call fails or is done, and never waits for an event loop that is not there.

    What SQLite has opened no child may use: it would lose what it writes.
    """
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FORKING, str(tmp_path / "chat.db"), stdout=subprocess.PIPE
    )
    assert (await asyncio.wait_for(ran.communicate(), 60))[0].split() == [b"12", b"7"]

    later = tmp_path / "later"
    one, other = find_bridge(later / "chat.db"), find_bridge(later / "chat.db")
    with pytest.raises(TenutoError):
        await one.read(nothing)
    later.mkdir()
    await one.read(nothing)
    await other.read(nothing)
    one.close()
    one.close()
    assert refuses_because(one, "closed")
    await other.read(nothing)
    other.close()


def test_a_stopped_event_loop_is_an_error() -> None:
    async def adapt() -> LoopBridge:
        async with tenuto.open("memory://") as app:
            return find_bridge(app)

    loop = asyncio.new_event_loop()
    bridge = loop.run_until_complete(adapt())
    assert refuses_because(bridge, "does not run")
    loop.close()
    assert refuses_because(bridge, "closed")
