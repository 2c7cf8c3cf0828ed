"""Types that are private for one assistant: order numbers and addresses in the shop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tenuto
from tenuto import Scope, Tenuto
from tenuto.assistants.custom import load_folder
from tenuto.errors import AssistantMissing
from tenuto.model import Changes, FinishTurn, NewSession, OpenTurn
from tenuto.model.privacy import Sink
from tenuto.privacy.record_redaction import redact_export_pages, redact_export_session
from tenuto.sessions import TurnRequest
from tenuto.sessions.titles import generated_title

pytestmark = pytest.mark.requirement("A35")


ANN = Scope(tenant="acme", user="1001")
NUMBER, STREET = "GD202610034163", "12 Oak Street"
COMPLAINT = f"My order {NUMBER} never came to {STREET}, Springfield"


@pytest.fixture
async def app() -> AsyncIterator[Tenuto]:
    async with tenuto.open("memory://") as app:
        yield app


async def records(app: Tenuto, session_id: str) -> dict[str, str]:
    """What is shown of a session outside the conversation itself."""
    session = await app.sessions.get(ANN, session_id)
    traces = await app.store.traces.traces(ANN, session_id, 10, None)
    pages = redact_export_pages(app.redactor, session, app.sessions.iter_pages(ANN, session))
    export = [await redact_export_session(app.redactor, session), *[page async for page in pages]]
    shown: dict[str, Any] = {"title": session.title, "trace": traces, "export": export}
    return {name: msgspec.json.encode(value).decode() for name, value in shown.items()}


async def test_the_shop_redacts_order_numbers_and_addresses_in_records(app: Tenuto) -> None:
    reply = await app.ask(ANN, COMPLAINT, assistant="goods")
    assert NUMBER in reply.text, "the tool finds the order by its number"
    await app.ask(ANN, "my orders", session_id=reply.session_id)
    await app.upkeep.drain()
    for name, text in (await records(app, reply.session_id)).items():
        assert NUMBER not in text, name
        assert STREET not in text, name
        assert "[REDACTED_ORDER_ID]" in text, name


# What is said, and the words of it that no record and no memory may have.
STATED = [
    ("我住在成都武侯科华北路65号，请寄到那里", ("成都武侯", "科华北路", "65号")),
    ("我的包裹请送到翠湖新村9栋2单元1103", ("翠湖", "9栋", "2单元")),
    ("我的收货地址：江苏省苏州市工业园区星湖街328号创意大厦A座602室", ("星湖街", "创意大厦", "602室")),
    ("I live at 221B Baker Street, London NW1 6XE", ("Baker", "NW1 6XE")),
    ("My address is 742 Evergreen Terrace, Springfield, IL 62704", ("Evergreen", "IL 62704")),
    ("My address is 36 quai des Orfèvres, 75001 Paris", ("Orfèvres", "75001 Paris")),
    ("My address is Berliner Straße 12a, 60311 Frankfurt", ("Berliner", "60311 Frankfurt")),
    ("I moved to Calle de Alcalá, 45, 28014 Madrid", ("Alcalá", "28014 Madrid")),
    ("I moved to Via Garibaldi 7, 20121 Milano", ("Garibaldi", "20121 Milano")),
    ("I still wait for #300987654", ("300987654",)),
]


@pytest.mark.requirement("T10", "A35")
@pytest.mark.parametrize("way", ["shop", "assistant", "policy"])
async def test_addresses_and_order_numbers_reach_no_record_and_no_memory(way: str, tmp_path: Path) -> None:
    """Asked for by the shop, by another assistant, or by the tenant's policy."""
    settings: dict[str, Any] = {}
    if way == "assistant":
        (tmp_path / "desk.toml").write_text('privacy_also = ["ADDRESS", "ORDER_ID"]\nsystem = {en = "You help."}\n')
        settings["assistants"] = load_folder(tmp_path)
    if way == "policy":
        (tmp_path / "privacy.toml").write_text('also = ["ADDRESS", "ORDER_ID"]')
        settings["privacy_file"] = str(tmp_path / "privacy.toml")
    name = {"shop": "goods", "assistant": "desk", "policy": "general"}[way]
    async with tenuto.open("memory://", **settings) as app:
        asked = [await app.ask(ANN, said, assistant=name) for said, _ in STATED]
        await app.upkeep.drain()
        memories = msgspec.json.encode(await (await app.memories()).list(ANN)).decode()
        for reply, (said, secrets) in zip(asked, STATED, strict=True):
            shown = await records(app, reply.session_id)
            for record, text in {**shown, "memory": memories}.items():
                assert not [one for one in secrets if one in text], (record, said)
        assert memories.count("[REDACTED_ADDRESS]") >= 5, "the statements themselves are remembered, equal ones once"


async def test_the_records_stay_redacted_after_a_change_of_assistant(app: Tenuto) -> None:
    first = await app.ask(ANN, "hello", assistant="general")
    await app.ask(ANN, COMPLAINT, session_id=first.session_id, assistant="goods")
    await app.ask(ANN, COMPLAINT, session_id=first.session_id, assistant="general")
    await app.sessions.patch(ANN, first.session_id, Changes(title=COMPLAINT))
    for name, text in (await records(app, first.session_id)).items():
        assert NUMBER not in text, name
        assert STREET not in text, name


@pytest.mark.parametrize(
    "words", [NUMBER, f"has {NUMBER.lower()} shipped?", f"订单{NUMBER}到了吗", f"{NUMBER[:2]} {NUMBER}"]
)
async def test_an_order_number_of_the_shop_needs_no_label(app: Tenuto, words: str) -> None:
    reply = await app.ask(ANN, words, assistant="goods")
    await app.ask(ANN, f"Is {NUMBER} late?", session_id=reply.session_id)
    await app.upkeep.drain()
    for name, text in (await records(app, reply.session_id)).items():
        assert NUMBER not in text.upper(), name


async def test_every_way_to_a_title_redacts_it(app: Tenuto) -> None:
    reply = await app.ask(ANN, "hello", assistant="goods")
    first = await app.sessions.get(ANN, reply.session_id)
    turn = await app.sessions.begin(ANN, TurnRequest(session_id=first.id))
    ticket = OpenTurn.named(ANN, first.id, turn.session.incarnation, turn.id)
    await app.sessions.finish(ticket, FinishTurn(reply=(), changes=Changes(title=COMPLAINT)))
    created, _ = await app.sessions.create(ANN, NewSession(title=COMPLAINT, metadata=first.metadata))
    forked = await app.sessions.fork(ANN, first.id, title=COMPLAINT)
    for session in (await app.sessions.get(ANN, first.id), created, forked):
        assert session.title == "My order [REDACTED_ORDER_ID] never came to [REDACTED_ADDRESS]"


async def test_what_was_noted_before_the_shop_joined_is_redacted(app: Tenuto) -> None:
    first = await app.ask(ANN, COMPLAINT, assistant="general")
    await app.upkeep.drain()
    await app.ask(ANN, "my orders", session_id=first.session_id, assistant="goods")
    await app.upkeep.drain()
    session = await app.sessions.get(ANN, first.session_id)
    assert NUMBER not in str(session.metadata)
    assert generated_title(session) is not None, "it is still a title of ours"
    for name, text in (await records(app, first.session_id)).items():
        assert NUMBER not in text, name
        assert STREET not in text, name


async def test_clients_cannot_remove_the_types_of_a_session(app: Tenuto) -> None:
    reply = await app.ask(ANN, "hello", assistant="goods")
    values: list[Any] = [None, [], ["PERSON"], "ADDRESS", {}]
    for given in values:
        await app.sessions.patch(ANN, reply.session_id, Changes(metadata={"privacy_also": given}))
    turn = await app.begin(ANN, "q", session_id=reply.session_id)
    await app.sessions.finish(turn, FinishTurn(reply=(), changes=Changes(metadata={"privacy_also": None})))
    assert (await app.sessions.reset(ANN, reply.session_id)).metadata["privacy_also"] == [
        "ADDRESS",
        "ORDER_ID",
        "PERSON",
    ]


async def test_other_assistants_keep_to_the_policy(app: Tenuto) -> None:
    reply = await app.ask(ANN, COMPLAINT, assistant="general")
    assert all(NUMBER in text for text in (await records(app, reply.session_id)).values())


async def test_a_policy_that_never_looks_for_a_type_wins(tmp_path: Path) -> None:
    (tmp_path / "privacy.toml").write_text('never = ["ORDER_ID"]')
    async with tenuto.open("memory://", privacy_file=str(tmp_path / "privacy.toml")) as app:
        reply = await app.ask(ANN, COMPLAINT, assistant="goods")
        for name, text in (await records(app, reply.session_id)).items():
            assert NUMBER in text or name == "title", name
            assert STREET not in text, name


async def test_the_conversation_itself_keeps_to_the_policy() -> None:
    async with tenuto.open("memory://", privacy_message="block", privacy_model="block") as app:
        reply = await app.ask(ANN, COMPLAINT, assistant="goods")
        assert NUMBER in reply.text


async def test_a_scan_finds_them_in_titles_and_traces(app: Tenuto) -> None:
    reply = await app.ask(ANN, "hello", assistant="goods")
    session = await app.sessions.get(ANN, reply.session_id)
    await app.stores.unredacted.sessions.patch(session.scope, session.id, Changes(title=COMPLAINT))
    reports = [report async for report in app.privacy.scan(ANN, fix=True)]
    assert reports[-1].matches[Sink.TITLE] == {"ORDER_ID": 1, "ADDRESS": 1}
    assert NUMBER not in (await app.sessions.get(ANN, reply.session_id)).title


async def test_an_assistant_with_an_unknown_type_takes_no_turns(tmp_path: Path) -> None:
    (tmp_path / "desk.toml").write_text('privacy_also = ["ORDERS"]\nsystem = {en = "You help."}\n')
    async with tenuto.open("memory://", assistants=load_folder(tmp_path)) as app:
        with pytest.raises(AssistantMissing) as excinfo:
            await app.ask(ANN, "hello", assistant="desk")

    assert "privacy_also: 'ORDERS' is not a type" in excinfo.value.cause
