"""The channel for any other platform: signed JSON in and out."""

from __future__ import annotations

import asyncio
import hmac
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import tenuto
from tenuto.channels.webhook import WebhookApp
from tenuto.channels.webhook.channel import WebhookChannel
from tenuto.errors import ChannelUnavailable, DeliveryRefused, InvalidSetting, ReplyRefused, TenutoError
from tenuto.gateway.service import Gateway
from tenuto.llm import Echo, Hang, ScriptedModel
from tenuto.model import Scope
from tenuto.model.channel import ChannelPolicy, Delivery, Incoming, MessageKind, ResetBy, SessionMode
from tenuto.model.signature import read_signing_key, signed_headers
from tenuto.ports import Channel, utc_now
from tenuto.settings import read_settings
from tenuto.wiring.channels import webhook_apps
from tenuto.wiring.gateway import open_gateways
from tests.clock import START, FakeClock
from tests.group_chat import message
from tests.servers.loopback import serving
from tests.timeouts import LONG

pytestmark = pytest.mark.requirement("D1", "D3", "D7", "D20", "D26", "T14")


KEY = b"0123456789abcdef"
APP = WebhookApp(name="shop", secret=KEY.decode(), reply_url="http://127.0.0.1:9/replies", tenant="acme")
BODY = {"id": "m-1", "chat": "c-1", "sender": "u-1", "text": "hello"}


def sign(name: str, seconds: int | str, body: bytes, key: bytes = KEY) -> str:
    return "v1," + b64encode(hmac.digest(key, f"{name}.{seconds}.".encode() + body, sha256)).decode()


def delivery(body: Any = BODY, at: datetime = START, name: str = "evt-1", **headers: str) -> Delivery:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    seconds = int(at.timestamp())
    own = {"webhook-id": name, "webhook-timestamp": str(seconds), "webhook-signature": sign(name, seconds, raw)}
    return Delivery(body=raw, headers={**own, **{key.replace("_", "-"): value for key, value in headers.items()}})


async def receive(channel: Channel, given: Delivery) -> Incoming:
    channel.verify(given)
    return await channel.parse(given)


def test_the_published_signature_is_made() -> None:
    """The example of the Standard Webhooks libraries."""
    key = read_signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "secret")
    at = datetime.fromtimestamp(1614265330, UTC)

    headers = signed_headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}')

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


READ: list[tuple[Delivery, dict[str, Any]]] = [
    (delivery(), {"sent_at": START, "kind": MessageKind.TEXT, "addressed": True, "event_id": "evt-1"}),
    (delivery({**BODY, "unknown": 1, "kind": "sticker"}), {"kind": MessageKind.OTHER}),
    (delivery({**BODY, "kind": "image"}), {"kind": MessageKind.IMAGE}),
    (delivery({**BODY, "addressed": False}), {"addressed": True}),
    (
        delivery({**BODY, "group": True, "addressed": False, "thread": "t-1", "sender_name": "Ann"}),
        {"group": True, "addressed": False, "thread": "t-1", "sender_name": "Ann"},
    ),
    (delivery({**BODY, "sent_at": "2026-01-15T08:00:00Z"}), {"sent_at": START - timedelta(hours=1)}),
    (delivery({**BODY, "tenant": "acme"}), {"tenant": "acme"}),
    (delivery(at=START - timedelta(minutes=4)), {}),
    (delivery(webhook_signature=f"v1,b3RoZXI= {sign('evt-1', int(START.timestamp()), delivery().body)}"), {}),
]


async def test_a_signed_delivery_is_read(subtests: pytest.Subtests) -> None:
    channel = WebhookChannel(APP, clock=FakeClock())
    plain = {"id": "m-1", "chat": "c-1", "sender": "u-1", "text": "hello", "tenant": "acme", "group": False}
    for number, (given, expected) in enumerate(READ):
        with subtests.test(number=number):
            incoming = await receive(channel, given)

            assert incoming.message is not None
            assert asdict(incoming.message) == {**asdict(incoming.message), **plain, **expected}
    await channel.close()


NOW = int(START.timestamp())


REFUSED = [
    (Delivery(body=b"{}"), True, "wrong or missing"),
    (replace(delivery(), body=b'{"id":"m-1","chat":"c-1","sender":"u-2"}'), True, "wrong or missing"),
    (delivery(webhook_id="evt-2"), True, "wrong or missing"),
    (delivery(webhook_timestamp=str(NOW + 1)), True, "wrong or missing"),
    (delivery(webhook_signature=sign("evt-1", NOW, delivery().body, b"another key")), True, "wrong or missing"),
    (delivery(webhook_signature=sign("evt-1", NOW, delivery().body)[3:]), True, "wrong or missing"),
    (delivery(webhook_signature="v1,ümlaut"), True, "wrong or missing"),
    (delivery(name=""), True, "wrong or missing"),
    (delivery(at=START - timedelta(minutes=5, seconds=1)), True, "five minutes"),
    (delivery(at=START + timedelta(minutes=5, seconds=1)), True, "five minutes"),
    (
        delivery(webhook_timestamp="soon", webhook_signature=sign("evt-1", "soon", delivery().body)),
        True,
        "five minutes",
    ),
    (delivery(b"{"), False, "cannot be read"),
    (delivery(b'{"other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), False, "cannot be read"),
    (delivery(b'{"id": "\xff"}'), False, "UTF-8"),
    (delivery({"chat": "c-1", "sender": "u-1"}), False, "`id`"),
    (delivery({**BODY, "chat": 5}), False, r"\$.chat"),
    (delivery({**BODY, "sender": ""}), False, "sender is empty"),
    (delivery({**BODY, "text": "private\0"}), False, "NUL"),
    (delivery({**BODY, "sent_at": "2026-01-15T08:00:00"}), False, "timezone"),
    (delivery({**BODY, "tenant": "other"}), False, "another tenant"),
    # A reply of ours that comes back is no message.
    (delivery({"type": "message.reply", "in_reply_to": "m-1", "chat": "c-1", "sender": "u-1"}), False, "`id`"),
]


async def test_a_delivery_that_is_forged_old_or_unreadable_is_refused(subtests: pytest.Subtests) -> None:
    channel = WebhookChannel(APP, clock=FakeClock())
    for number, (given, forged, why) in enumerate(REFUSED):
        with subtests.test(number=number):
            with pytest.raises(DeliveryRefused, match=why) as excinfo:
                await receive(channel, given)

            assert excinfo.value.forged is forged
            assert "private" not in str(excinfo.value)
    await channel.close()


async def test_a_message_names_its_tenant_only_where_it_may() -> None:
    """Not the installation's own, whose ids begin with a tilde."""
    channel = WebhookChannel(replace(APP, tenant_from_body=True), clock=FakeClock())

    incoming = await channel.parse(delivery({**BODY, "tenant": "other"}))
    with pytest.raises(DeliveryRefused, match="'~'"):
        await channel.parse(delivery({**BODY, "tenant": "~system"}))
    await channel.close()

    assert incoming.message is not None
    assert incoming.message.tenant == "other"


class Receiver:
    """The platform's side: it takes replies that are signed, or answers with what it is told to."""

    def __init__(self) -> None:
        self.answers: list[Response] = []
        self.bodies: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self._came = asyncio.Condition()

    async def take(self, request: Request) -> Response:
        body, headers = await request.body(), request.headers
        assert headers["webhook-signature"] == sign(headers["webhook-id"], headers["webhook-timestamp"], body)
        async with self._came:
            self.bodies.append(json.loads(body))
            self.ids.append(headers["webhook-id"])
            self._came.notify_all()
        return self.answers.pop(0) if self.answers else Response(status_code=202)

    async def wait_for(self, count: int) -> None:
        """Return when so many replies have come."""
        async with asyncio.timeout(LONG), self._came:
            await self._came.wait_for(lambda: len(self.bodies) >= count)


@asynccontextmanager
async def receiving() -> AsyncIterator[tuple[Receiver, WebhookApp]]:
    receiver = Receiver()
    async with serving(Starlette(routes=[Route("/replies", receiver.take, methods=["POST"])])) as address:
        yield receiver, replace(APP, reply_url=f"{address}/replies")


@pytest.mark.requirement("T14")
async def test_a_reply_is_signed_and_recognisable_and_refusals_are_told_apart() -> None:
    """The same reply again has the same id; what may succeed later is told apart from what never will."""
    one = message("hello", thread="t-1")
    refusals: list[tuple[int, dict[str, str], type[TenutoError], timedelta | None]] = [
        *((status, {}, ReplyRefused, None) for status in (400, 404, 410, 413, 422)),
        *((status, {}, ChannelUnavailable, None) for status in (302, 401, 500, 503)),
        (429, {"Retry-After": "7"}, ChannelUnavailable, timedelta(seconds=7)),
        (503, {"Retry-After": "999999999999"}, ChannelUnavailable, timedelta(minutes=5)),
        (503, {"Retry-After": "Fri, 16 Jan 2026 09:00:00 GMT"}, ChannelUnavailable, None),
    ]
    async with receiving() as (receiver, app):
        channel = WebhookChannel(app)
        for status, headers, kind, wait in refusals:
            receiver.answers = [Response(status_code=status, headers=headers)]
            with pytest.raises(kind, match=f"status {status}") as excinfo:
                await channel.reply(one, "the answer")
            assert getattr(excinfo.value, "retry_after", None) == wait
        await channel.reply(one, "the answer")
        await channel.reply(message("another"), "the answer")
        await channel.close()
    gone = WebhookChannel(app)
    with pytest.raises(ChannelUnavailable, match="ConnectError"):
        await gone.reply(one, "the answer")
    await gone.close()

    assert len(set(receiver.ids[:-1])) == 1
    assert receiver.ids[-1] not in receiver.ids[:-1]
    assert receiver.bodies[0] == {
        "type": "message.reply",
        "in_reply_to": one.id,
        "tenant": "acme",
        "chat": one.chat,
        "thread": "t-1",
        "sender": one.sender,
        "text": "the answer",
    }


async def deliver(gateway: Gateway, text: str, number: int) -> bool:
    given = delivery({**BODY, "id": f"m-{number}", "text": text}, at=datetime.now(UTC), name=f"evt-{number}")
    incoming = await receive(gateway.channel, given)
    assert incoming.message is not None
    return await gateway.accept(incoming.message)


def last_prompt(model: ScriptedModel) -> str:
    return str([one for one in model.requests if one.tool_context is not None][-1].messages)


@pytest.mark.requirement("D1", "D3", "D20", "T14")
async def test_a_chat_behind_a_webhook_is_remembered_until_it_is_reset() -> None:
    """One session for a chat; each message is answered once, also after a restart."""
    hang = Hang()
    model = ScriptedModel(hang, Echo())
    async with receiving() as (receiver, app), tenuto.open("memory://", model=model, summarizer_model="offline") as t:
        async with open_gateways([app], t.gateway, utc_now) as (gateway,):
            assert await deliver(gateway, "my cat is Tom", 1)
            await hang.reached.wait()
        async with open_gateways([app], t.gateway, utc_now) as (gateway,):
            await receiver.wait_for(1)
            assert not await deliver(gateway, "my cat is Tom", 1)
            await deliver(gateway, "what is its name?", 2)
            await receiver.wait_for(2)
            assert "my cat is Tom" in last_prompt(model)
            await deliver(gateway, "/reset", 3)
            await receiver.wait_for(3)
            await deliver(gateway, "and now?", 4)
            await receiver.wait_for(4)
        (session,) = (await t.sessions.list(Scope(tenant="acme"))).sessions

    assert session.id.startswith("webhook-")
    assert [body["in_reply_to"] for body in receiver.bodies] == ["m-1", "m-2", "m-3", "m-4"]
    assert receiver.bodies[2]["text"] == "The conversation history is cleared; the next message starts from scratch."
    assert "Tom" not in last_prompt(model)


GOOD = """
[[webhook]]
name = "shop"
secret_env = "SHOP_SECRET"
reply_url = "https://shop.example/replies"
tenant = "acme"
session_mode = "fresh"
resetters = ["u-1"]
reset_by = "listed"
remember_events = "48h"
mentioned_only = false

[[lark]]
app_id = "cli_1"
"""


@pytest.mark.requirement("D7", "D26")
def test_apps_are_read_from_a_file_with_their_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How messages become turns is set for each app."""
    path = tmp_path / "channels.toml"
    path.write_text(GOOD)
    monkeypatch.setenv("SHOP_SECRET", KEY.decode())

    (app,) = webhook_apps(read_settings({"TENUTO_CHANNELS": str(path)}))

    assert app.secret == KEY.decode()
    assert KEY.decode() not in repr(app)
    assert app.policy == ChannelPolicy(
        prefix="webhook",
        session_mode=SessionMode.FRESH,
        reset_by=ResetBy.LISTED,
        resetters=("u-1",),
        remember_events=timedelta(hours=48),
        mentioned_only=False,
    )


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("[[webhook]]", "[[webhook", "channels.toml is not TOML"),
        ("[[webhook]]", "[webhook]", r"write \[\[webhook\]\] with two brackets"),
        ("[[webhook]]", "[[webhok]]", "webhok is unknown; expected one of lark, webhook"),
        ('"SHOP_SECRET"', '"OTHER"', r"\[\[webhook\]\] number 1: secret_env: the variable OTHER is not set"),
        ('secret_env = "SHOP_SECRET"', "", "secret: is missing"),
        ("secret_env", 'secret = "0123456789abcdef"\nsecret_env', "secret_env: contradicts secret"),
        ('secret_env = "SHOP_SECRET"', 'secret = "short"', "secret: must have at least 16 bytes"),
        ('"https://', '"http://', "reply_url: must begin with https://"),
        ("https://shop", "shop", "reply_url: must be an address"),
        ('"acme"', '"~acme"', "tenant: a tenant id may not start"),
        ('"shop"', '"a shop"', "name: is part of an address"),
        ("mentioned_only", "mention_only", "mention_only: there is no such setting; did you mean mentioned_only?"),
        ('"fresh"', '"new"', "session_mode: 'new' is not valid; expected stable or fresh"),
        ('["u-1"]', '"u-1"', "resetters: 'u-1' is not valid; expected a list"),
        ('"48h"', '"1h"', "remember_events: must be at least 8h"),
        ("[[lark]]", GOOD.partition("[[lark]]")[0] + "[[lark]]", "shop is configured twice"),
    ],
)
def test_a_table_that_does_not_fit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, why: str
) -> None:
    path = tmp_path / "channels.toml"
    path.write_text(GOOD.replace(old, new, 1))
    monkeypatch.setenv("SHOP_SECRET", KEY.decode())
    settings = read_settings({"TENUTO_CHANNELS": str(path)})

    with pytest.raises(InvalidSetting, match=why):
        webhook_apps(settings)
