"""Callbacks of Lark: what is believed, and what becomes of events."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import replace as replace_fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.channels.lark import LarkApp
from tenuto.channels.lark.channel import LarkChannel
from tenuto.channels.lark.content import card_content, text_content
from tenuto.channels.lark.crypto import check_signature, decrypt
from tenuto.errors import DeliveryRefused, InvalidSetting
from tenuto.gateway.addresses import address_of
from tenuto.model.channel import ChannelPolicy, ChatFile, Delivery, GroupScope, IncomingMessage, MessageKind
from tests.clock import START, FakeClock
from tests.lark_platform.callbacks import (
    Callback,
    Forgery,
    LarkCredentials,
    forge_callback,
    make_callback,
    make_challenge,
)

pytestmark = pytest.mark.requirement("D16", "D18", "T14")


PLATFORM = LarkCredentials(app_id="cli_1")
SEALED = LarkApp(
    app_id="cli_1",
    app_secret="the-secret-of-the-app",
    encrypt_key=PLATFORM.encrypt_key,
    verification_token=PLATFORM.verification_token,
)
BOT = "ou_bot"
DEEP = b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def delivery(callback: Callback) -> Delivery:
    return Delivery(body=callback.body, headers={name.lower(): value for name, value in callback.headers.items()})


def event(content: object, kind: str = "text", /, **fields: Any) -> dict[str, Any]:
    """A message of Ann; fields replace those of the message, or the event's header, sender and type."""
    header = {
        "event_id": "e1",
        "event_type": fields.pop("event_type", "im.message.receive_v1"),
        "token": PLATFORM.verification_token,
        "app_id": fields.pop("app_id", "cli_1"),
        "tenant_key": "tenant-1",
        "a field of tomorrow": [1],
    }
    sender = {"sender_id": {"open_id": "ou_ann"}, "sender_type": fields.pop("sender_type", "user"), "tenant_key": "t2"}
    message = {
        "message_id": "om_1",
        "chat_id": "oc_1",
        "chat_type": "p2p",
        "create_time": "1768467600000",
        "message_type": kind,
        "content": json.dumps(content),
        "another field": {},
        **fields,
    }
    return {"schema": "2.0", "header": header, "event": {"sender": sender, "message": message}}


def mention(key: str, open_id: str, name: str) -> dict[str, Any]:
    return {"key": key, "id": {"open_id": open_id, "user_id": None}, "name": name, "mentioned_type": "user"}


TO_BOT, TO_BEN = mention("@_user_1", BOT, "Tenuto"), mention("@_user_2", "ou_ben", "Ben")
GROUP: dict[str, Any] = {"chat_type": "group", "mentions": [TO_BOT, TO_BEN]}
POST = {
    "title": "Plan",
    "content": [
        [{"tag": "at", "user_id": "@_user_1", "user_name": "Tenuto"}, {"tag": "text", "text": " read "}],
        [{"tag": "a", "text": "this", "href": "https://a.example"}, {"tag": "img", "image_key": "img_1"}],
        [{"tag": "at", "user_id": "@_user_2"}, {"tag": "emotion", "emoji_type": "OK"}, {"tag": "at", "user_id": "all"}],
    ],
}
POST_TEXT = "Plan\n read \nthis (https://a.example)\n@Ben:OK:@all"
IMAGE_POST = {"title": "", "content": [[{"tag": "img", "image_key": "img_1"}]]}

SHOWN = {"files": (ChatFile(type="image", key="img_1"),)}
FILE = {"file_key": "k", "file_name": "a\tb.pdf"}

IN_GROUP: dict[str, Any] = {"group": True, "thread": "om_1"}
ANN = IncomingMessage(
    id="om_1",
    event_id="e1",
    tenant="tenant-1",
    chat="oc_1",
    sender="ou_ann",
    sent_at=datetime(2026, 1, 15, 9, tzinfo=UTC),
)
MESSAGES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("text", event({"text": " hello "}), {"text": "hello"}),
    ("bot cut", event({"text": "@_user_1 /reset"}, **GROUP), {"text": "/reset", **IN_GROUP}),
    ("others named", event({"text": "@_user_1 ask @_user_2"}, **GROUP), {"text": "ask @Ben", **IN_GROUP}),
    (
        "not addressed",
        event({"text": "@_all hi @_user_2"}, chat_type="group", mentions=[TO_BEN]),
        {"text": "@all hi @Ben", **IN_GROUP, "addressed": False},
    ),
    ("no mention", event({"text": "hi"}, chat_type="group"), {"text": "hi", **IN_GROUP, "addressed": False}),
    ("topic group", event({"text": "hi"}, chat_type="topic_group"), {"text": "hi", **IN_GROUP, "addressed": False}),
    ("post", event(POST, "post", **GROUP), {"text": POST_TEXT, **IN_GROUP, **SHOWN}),
    ("post of a locale", event({"zh_cn": POST}, "post", mentions=[TO_BOT, TO_BEN]), {"text": POST_TEXT, **SHOWN}),
    ("post without words", event(IMAGE_POST, "post"), {"kind": MessageKind.IMAGE, **SHOWN}),
    ("image", event({"image_key": "img_1"}, "image"), {"kind": MessageKind.IMAGE, **SHOWN}),
    ("image without a key", event({"image_key": ["k"]}, "image"), {"kind": MessageKind.IMAGE}),
    ("image with an odd key", event({"image_key": "\0"}, "image"), {"kind": MessageKind.IMAGE}),
    (
        "file",
        event(FILE, "file"),
        {"kind": MessageKind.FILE, "files": (ChatFile(type="file", key="k", name="ab.pdf"),)},
    ),
    (
        "sound",
        event({"file_key": "k"}, "audio"),
        {"kind": MessageKind.AUDIO, "files": (ChatFile(type="audio", key="k"),)},
    ),
    ("film", event({"file_key": "k"}, "media"), {"kind": MessageKind.VIDEO}),
    ("sticker", event({"file_key": "k"}, "sticker"), {"kind": MessageKind.OTHER}),
    ("thread", event({"text": "hi"}, thread_id="omt_1", root_id="om_0"), {"text": "hi", "thread": "omt_1"}),
    ("reply", event({"text": "hi"}, root_id="om_0"), {"text": "hi", "thread": "om_0"}),
    ("NUL", event({"text": "a\0b"}), {"text": "a\ufffdb"}),
]
IGNORED: list[tuple[dict[str, Any], str]] = [
    (event({"text": "hi"}, event_type="im.chat.updated_v1"), "im.chat.updated_v1"),
    (event({"text": "hi"}, sender_type="app"), "sender"),
    (event({"text": "hi"}, app_id="cli_2"), "another app"),
    ({"uuid": "u1", "type": "event_callback", "event": {"type": "message"}}, "event_callback"),
]


async def opened(app: LarkApp = SEALED) -> LarkChannel:
    channel = LarkChannel(app, clock=FakeClock())
    channel._bot = BOT
    return channel


@pytest.mark.requirement("D16", "D18")
async def test_events_become_messages() -> None:
    """Chat, thread, sender and words come from the event, those of a long connection included."""
    channel = await opened()
    for name, payload, expected in MESSAGES:
        callback = delivery(make_callback(PLATFORM, payload, START))
        channel.verify(callback)
        incoming = await channel.parse(callback)
        plain = await channel.parse(Delivery(body=json.dumps(payload).encode()))

        assert incoming.message == replace(ANN, **expected), name
        assert plain == incoming, name
    await channel.close()


@pytest.mark.requirement("D16")
async def test_replies_are_in_the_session_of_the_question() -> None:
    """Where each thread has a session, a message in a group begins one, and replies to it belong there."""
    channel = await opened()
    policy = ChannelPolicy(group_scope=GroupScope.THREAD)

    async def session(**fields: Any) -> str:
        body = json.dumps(event({"text": "hi"}, chat_type="group", **fields)).encode()
        message = (await channel.parse(Delivery(body=body))).message
        assert message is not None
        return address_of(channel, message, policy).session_id

    question = await session(message_id="om_1")
    assert question == await session(message_id="om_2", root_id="om_1", parent_id="om_1")
    assert question == await session(message_id="om_3", root_id="om_1", parent_id="om_2")
    assert question != await session(message_id="om_4")
    await channel.close()


@pytest.mark.requirement("T14")
async def test_what_needs_no_answer_is_acknowledged() -> None:
    """What is not a person's message to this app is acknowledged, so that it is not delivered again."""
    channel = await opened()
    for payload, why in IGNORED:
        incoming = await channel.parse(delivery(make_callback(PLATFORM, payload, START)))

        assert incoming.message is None
        assert why in incoming.ignored
    for app in (PLATFORM, LarkCredentials(app_id="cli_1", encrypt_key=None)):
        channel = await opened(replace(SEALED, encrypt_key=app.encrypt_key))
        asked = delivery(make_challenge(app, "c-1", START))
        for callback in (asked, Delivery(body=asked.body)):
            channel.verify(callback)
            assert (await channel.parse(callback)).answer == {"challenge": "c-1"}
    await channel.close()


@pytest.mark.requirement("T14")
@pytest.mark.parametrize(
    ("how", "forged"), [(how, how not in (Forgery.GARBAGE_CIPHERTEXT, Forgery.NO_JSON)) for how in Forgery]
)
async def test_what_nothing_proves_is_refused(how: Forgery, forged: bool) -> None:
    """Wrong signatures, tokens and times are forged; what cannot be read is refused, too."""
    channel = await opened()
    callback = delivery(forge_callback(PLATFORM, event({"text": "my secret words"}), how, START))

    with pytest.raises(DeliveryRefused) as excinfo:
        channel.verify(callback)

    assert excinfo.value.forged is forged
    assert "secret" not in str(excinfo.value)


@pytest.mark.requirement("T14")
async def test_without_an_encrypt_key_the_token_decides() -> None:
    """A request without the token is forged, also a challenge, and one for another app."""
    payload = event({"text": "hi"})
    plain = replace(SEALED, encrypt_key=None)
    connected = replace(SEALED, encrypt_key=None, verification_token=None, long_connection=True)
    unproved = {**payload, "header": {**payload["header"], "token": ""}}
    cases = [
        (plain, unproved),
        (plain, {"type": "url_verification", "challenge": "c", "token": "guessed"}),
        (plain, event({"text": "hi"}, app_id="cli_2")),
        (SEALED, {"type": "url_verification", "challenge": "c", "token": PLATFORM.verification_token}),
        (connected, payload),
    ]
    (await opened(plain)).verify(Delivery(body=json.dumps(payload).encode()))
    for app, body in cases:
        channel = await opened(app)
        with pytest.raises(DeliveryRefused) as excinfo:
            channel.verify(Delivery(body=json.dumps(body).encode()))
        assert excinfo.value.forged


@pytest.mark.requirement("T14")
async def test_bodies_without_a_signature_get_one_refusal() -> None:
    """A wrong padding, a wrong event and a wrong token look alike, so that no answer helps to decrypt an event."""
    sealed = b64decode(json.loads(make_callback(PLATFORM, event({"text": "hi"}), START).body)["encrypt"])
    tampered = [sealed[:-17] + bytes([byte]) + sealed[-16:] for byte in range(256)]
    challenge = make_challenge(replace_fields(PLATFORM, verification_token="guessed"), "c", START).body
    channel, refusals = await opened(), set()

    for body in (*map(seal_bytes, tampered), challenge, b'{"type": "url_verification"}', DEEP, b"\xff", b"{}"):
        with pytest.raises(DeliveryRefused) as excinfo:
            channel.verify(Delivery(body=body))
        refusals.add((str(excinfo.value), excinfo.value.code, excinfo.value.forged))

    assert len(refusals) == 1
    assert refusals.pop()[2]


def seal_bytes(raw: bytes) -> bytes:
    return json.dumps({"encrypt": b64encode(raw).decode()}).encode()


@pytest.mark.requirement("T14")
@pytest.mark.parametrize(
    "payload",
    [
        event({"text": 7}),
        event("no object"),
        event({"text": "hi"}, create_time="soon"),
        event({"text": "hi"}, message_id=""),
        event({"content": 5}, "post"),
        {**event({}), "event": {"message": {}}},
        {**event({}), "event": "hi"},
        event({}, "post", content=DEEP.decode()),
        event({"text": "hi"}, other="DEEP"),
    ],
)
async def test_a_message_that_cannot_be_read_is_refused(payload: dict[str, Any]) -> None:
    """A broken event is refused, not answered with an error of ours."""
    with pytest.raises(DeliveryRefused) as excinfo:
        await (await opened()).parse(Delivery(body=json.dumps(payload).encode().replace(b'"DEEP"', DEEP)))

    assert not excinfo.value.forged


@pytest.mark.requirement("T14")
def test_signature_and_encryption_are_the_platforms() -> None:
    """The vector of the platform's documentation, and a signature that its SDK accepts."""
    body = b'{"schema":"2.0","header":{"event_type":"im.message.receive_v1","token":"v"},"event":{}}'
    signature = "33c6b7bcdf409ab317c77a893811f653f2f7f486576e942450580035706896db"
    names = ("x-lark-request-timestamp", "x-lark-request-nonce", "x-lark-signature")
    headers = dict(zip(names, ("1700000000", "nonce-1", signature), strict=True))
    signed_at = datetime.fromtimestamp(1_700_000_000, UTC)

    assert decrypt("test key", "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk=") == b"hello world"
    for minutes in (-5, 0, 5):
        check_signature("test key", headers, body, signed_at + timedelta(minutes=minutes))
    for minutes in (-6, 6):
        with pytest.raises(DeliveryRefused):
            check_signature("test key", headers, body, signed_at + timedelta(minutes=minutes))


@pytest.mark.requirement("D27")
def test_an_answer_fits_and_mentions_no_person() -> None:
    """A model that repeats a mark does not call everyone; a long answer is cut, not refused."""
    for content, limit in ((text_content, 150_000), (card_content, 30_000)):
        request = json.dumps({"content": content('"\n\u4e2d' * 100_000), "uuid": "u" * 40}, ensure_ascii=False)

        assert "<at" not in content('<at user_id="all">all</at> < AT id=all>')
        assert limit * 0.7 < len(request.encode()) < limit
        assert "[…]" in request


@pytest.mark.requirement("D22")
@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        ({"app_id": ""}, "lark_app_id"),
        ({"app_secret": "a\nb"}, "lark_app_secret"),
        ({"encrypt_key": None, "verification_token": ""}, "lark_encrypt_key"),
        ({"domain": "http://open.feishu.cn"}, "lark_domain"),
        ({"domain": "https://open.feishu.cn/path"}, "lark_domain"),
        ({"domain": "http://127.0.0.1.example.com"}, "lark_domain"),
        ({"domain": "https://[::1"}, "lark_domain"),
    ],
)
def test_an_app_that_cannot_work_is_refused(wrong: dict[str, Any], setting: str) -> None:
    """The setting at fault is named, and no secret is shown."""
    given = {name: getattr(SEALED, name) for name in SEALED.__struct_fields__}

    with pytest.raises(InvalidSetting) as excinfo:
        LarkApp(**given | wrong)

    assert excinfo.value.setting == setting
    assert "secret" not in repr(SEALED)
    LarkApp(**given | {"domain": "http://127.0.0.1:8080"})
