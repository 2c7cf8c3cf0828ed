"""The library called without a type checker: one sentence that names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.app import Tenuto
from tenuto.chat import ChatRequest, Reply
from tenuto.client.connection import TenutoClient
from tenuto.errors import Invalid, InvalidSetting
from tenuto.model import AppendBatch, Changes, FinishTurn, Page, Rewrite, Scope, Session, SessionQuery, Truncation
from tenuto.model.generation import ToolSpec
from tenuto.model.prompt import Language
from tenuto.sessions import AppendRequest
from tests.samples import SENT_AT, opening, says

TOOL = ToolSpec(name="f", description="", parameters={})


async def finish(t: Tenuto, scope: Scope, reply: Any) -> Session:
    return await t.finish(await t.begin(scope, "hi"), reply)


async def taken(t: Tenuto, scope: Any, request: Any) -> Reply:
    return await (await t.chat()).take_turn(scope, request)


CALLS: dict[str, tuple[Callable[[Any, Any], Awaitable[object]], str]] = {
    "ask nothing": (lambda t, ann: t.ask(ann, None), "the message must be a text (str), not NoneType"),
    "ask a number": (lambda t, ann: t.ask(ann, 5), "the message must be a text (str), not int"),
    "ask bytes": (lambda t, ann: t.ask(ann, b"secret words"), "the message must be a text (str), not bytes"),
    "session": (lambda t, ann: t.ask(ann, "hi", session_id=5), "the session id must be a text (str), not int"),
    "assistant": (lambda t, ann: t.ask(ann, "hi", assistant=5), "the assistant id must be a text (str), not int"),
    "persona": (lambda t, ann: t.ask(ann, "hi", persona=["x"]), "the persona id must be a text (str), not list"),
    "key": (lambda t, ann: t.ask(ann, "hi", idempotency_key=5), "the key must be a text (str), not int"),
    "ask no scope": (lambda t, _: t.ask("ann", "hi"), "scope must be a Scope, as scope(user=…) makes it, not str"),
    "begin no scope": (
        lambda t, _: t.begin(None, "hi"),
        "scope must be a Scope, as scope(user=…) makes it, not NoneType",
    ),
    "begin key": (lambda t, ann: t.begin(ann, "hi", idempotency_key=5), "the key must be a text (str), not int"),
    "begin window": (
        lambda t, ann: t.begin(ann, "hi", window="all"),
        "the window must be a whole number (int), not str",
    ),
    "finish with a number": (
        lambda t, ann: finish(t, ann, 5),
        "the reply must be a text (str) or a list of Draft, not int",
    ),
    "finish with nothing": (
        lambda t, ann: finish(t, ann, None),
        "the reply must be a text (str) or a list of Draft, not NoneType",
    ),
    "finish with texts": (lambda t, ann: finish(t, ann, ["hi"]), "a message must be a Draft, not str"),
    "finish no turn": (lambda t, _: t.finish(None, "hi"), "the turn must be an OpenTurn, not NoneType"),
    "abandon no turn": (lambda t, _: t.abandon("t"), "the turn must be an OpenTurn, not str"),
    "language": (lambda t, ann: t.ask(ann, "hi", language="fr"), "language must be a Language: en or zh"),
    "language number": (lambda t, ann: t.ask(ann, "hi", language=5), "language must be a Language: en or zh"),
    "profile text": (lambda t, ann: t.ask(ann, "hi", profile="brief"), "profile must be a dict, not str"),
    "profile set": (lambda t, ann: t.ask(ann, "hi", profile={"a": {1}}), "profile holds a set, which is not JSON"),
    "edit": (lambda t, ann: t.ask(ann, "hi", session_id="s", edit="1"), "edit must be a whole number (int), not str"),
    "fields beside a request": (
        lambda t, ann: t.ask(ann, ChatRequest(text="hi"), persona="maid"),
        "a whole ChatRequest has its own persona: set it there",
    ),
    "two inputs": (lambda t, ann: t.ask(ann, "hi", messages=(says("hi"),)), "text and parts, or messages, not both"),
    "messages": (lambda t, ann: t.ask(ann, "", messages=["hi"]), "messages must be a tuple, not list"),
    "a message": (lambda t, ann: t.ask(ann, "", messages=("hi",)), "a message must be a Draft, not str"),
    "tools": (lambda t, ann: t.ask(ann, "hi", tools=("f",)), "a tool must be a ToolSpec, not str"),
    "same tools": (lambda t, ann: t.ask(ann, "hi", tools=(TOOL, TOOL)), "tools: two have the same name"),
    "tool choice": (
        lambda t, ann: t.ask(ann, "hi", tools=(TOOL,), tool_choice="g"),
        "tool_choice: must be auto, none, required or the name of one of the tools",
    ),
    "required without tools": (
        lambda t, ann: t.ask(ann, "hi", tool_choice="required"),
        "tool_choice: must be auto, none, required or the name of one of the tools",
    ),
    "reply tokens": (
        lambda t, ann: t.ask(ann, ChatRequest(text="hi", reply_tokens=0)),
        "reply_tokens is not between 1 and 2147483648",
    ),
    "turn without a request": (lambda t, ann: taken(t, ann, "hi"), "the request must be a ChatRequest, not str"),
    "turn without a scope": (lambda t, _: taken(t, "ann", ChatRequest(text="hi")), "scope must be a Scope, not str"),
    "sessions begin": (lambda t, ann: t.sessions.begin(ann, "hi"), "the request must be a TurnRequest, not str"),
    "sessions append": (
        lambda t, ann: t.sessions.append(ann, "s", "hi"),
        "the request must be an AppendRequest, not str",
    ),
    "sessions patch": (lambda t, ann: t.sessions.patch(ann, "s", {}), "the changes must be a Changes, not dict"),
    "sessions create": (
        lambda t, ann: t.sessions.create(ann, idempotency_key=5),
        "the key must be a text (str), not int",
    ),
    "sessions create new": (
        lambda t, ann: t.sessions.create(ann, {"title": "x"}),
        "what the session starts with must be a NewSession, not dict",
    ),
    "sessions messages": (lambda t, ann: t.sessions.messages(ann, "s", 5), "the page must be a Page, not int"),
    "sessions list": (lambda t, ann: t.sessions.list(ann, {}), "the query must be a SessionQuery, not dict"),
    "sessions truncate": (
        lambda t, ann: t.sessions.truncate(ann, "s", 1),
        "the truncation must be a Truncation, not int",
    ),
    "sessions rewrite": (lambda t, ann: t.sessions.rewrite(ann, "s", []), "the rewriting must be a Rewrite, not list"),
    "sessions restore": (
        lambda t, ann: t.sessions.restore(ann, {}),
        "what was saved must be an ExportedSession, not dict",
    ),
    "sessions renew": (lambda t, _: t.sessions.renew("t"), "the turn must be an OpenTurn, not str"),
    "sessions fork": (
        lambda t, ann: t.sessions.fork(ann, "s", at="1"),
        "the fork point must be a whole number (int), not str",
    ),
    "sessions fork before all": (
        lambda t, ann: t.sessions.fork(ann, "s", at=-1),
        "the fork point is not between 0 and 9007199254740991",
    ),
    "sessions sweep": (lambda t, _: t.sessions.sweep("all"), "limit must be a whole number (int), not str"),
    "sessions erase": (lambda t, ann: t.sessions.erase(ann, None), "limit must be a whole number (int), not NoneType"),
    "begin nothing": (lambda t, ann: t.begin(ann, None), "the message must be a text (str), not NoneType"),
    "begin session": (lambda t, ann: t.begin(ann, "hi", session_id=5), "the session id must be a text (str), not int"),
}


@pytest.mark.parametrize(("call", "said"), CALLS.values(), ids=CALLS)
async def test_what_is_no_text_is_told_in_a_sentence(
    call: Callable[[Tenuto, Any], Awaitable[object]], said: str
) -> None:
    async with tenuto.open("memory://") as t:
        with pytest.raises(Invalid) as excinfo:
            await call(t, t.scope(user="ann"))

    assert str(excinfo.value) == said


SCOPED: dict[str, Callable[[Any, Any], Awaitable[object]]] = {
    "append": lambda sessions, ann: sessions.append(ann, "s", AppendRequest(messages=())),
    "create": lambda sessions, ann: sessions.create(ann),
    "get": lambda sessions, ann: sessions.get(ann, "s"),
    "messages": lambda sessions, ann: sessions.messages(ann, "s"),
    "list": lambda sessions, ann: sessions.list(ann),
    "patch": lambda sessions, ann: sessions.patch(ann, "s", Changes()),
    "attribute": lambda sessions, ann: sessions.get_attribute(ann, "s", "name"),
    "reset": lambda sessions, ann: sessions.reset(ann, "s"),
    "truncate": lambda sessions, ann: sessions.truncate(ann, "s", Truncation(after=0)),
    "rewrite": lambda sessions, ann: sessions.rewrite(ann, "s", Rewrite()),
    "fork": lambda sessions, ann: sessions.fork(ann, "s"),
    "delete": lambda sessions, ann: sessions.delete(ann, "s"),
    "restore": lambda sessions, ann: sessions.restore(ann, None),
    "stats": lambda sessions, ann: sessions.stats(ann),
    "erase": lambda sessions, ann: sessions.erase(ann),
}


@pytest.mark.parametrize("call", SCOPED.values(), ids=SCOPED)
async def test_whose_sessions_they_are_is_told_by_a_scope(call: Callable[[Any, Any], Awaitable[object]]) -> None:
    async with tenuto.open("memory://") as t:
        with pytest.raises(Invalid, match=r"^scope must be a Scope, not str$"):
            await call(t.sessions, "ann")


@pytest.mark.parametrize("named", [{"after": "1"}, {"after": 0, "if_version": "1"}, {"after": 0, "keep_seqs": ("1",)}])
def test_a_truncation_is_told_in_whole_numbers(named: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"must be a whole number \(int\), not str"):
        Truncation(**named)


@pytest.mark.parametrize("named", [{"user": 5}, {"user": b"ann"}, {"tenant": None}, {"site": 0}, {"chat": 5}], ids=str)
async def test_a_scope_is_made_of_texts(named: dict[str, Any]) -> None:
    (what,) = named
    async with tenuto.open("memory://") as t:
        with pytest.raises(Invalid, match=f"the {what} id must be a text"):
            t.scope(**named)


@pytest.mark.parametrize("takes", [Tenuto, TenutoClient])
def test_a_scope_is_made_with_all_of_its_fields(takes: type[Tenuto | TenutoClient]) -> None:
    assert {*inspect.signature(takes.scope).parameters} == {"self", *Scope.__struct_fields__}


@pytest.mark.parametrize("takes", [Tenuto, TenutoClient])
def test_what_a_question_takes_is_spelled_out(takes: type[Tenuto | TenutoClient]) -> None:
    named = {*inspect.signature(takes.ask).parameters} - {"self", "scope"}

    # Attachments are contents and the parts that show them, in one.
    known = {*ChatRequest.__struct_fields__, "attachments"}
    assert named <= known, "no field has another name, and none is hidden behind `**`"


async def test_a_whole_request_is_asked_as_it_is() -> None:
    request = ChatRequest(text="hello", language=Language.CHINESE, reply_metadata={"from": "a test"})
    async with tenuto.open("memory://") as t:
        ann = t.scope(user="ann")
        reply = await t.ask(ann, request)
        messages = (await t.sessions.messages(ann, reply.session_id)).messages

    assert messages[-1].metadata["from"] == "a test"


@pytest.mark.parametrize("language", ["zh", Language.CHINESE], ids=["code", "value"])
async def test_a_language_may_be_asked_for_by_its_code(language: Any) -> None:
    async with tenuto.open("memory://") as t:
        reply = await t.ask(t.scope(user="ann"), "hello", language=language)
        session = await t.sessions.get(t.scope(user="ann"), reply.session_id)

    assert session.context["language"] == "zh"


@pytest.mark.parametrize("kind", [Page, SessionQuery])
@pytest.mark.parametrize("limit", ["5", None, 1.5, True], ids=repr)
def test_a_limit_is_a_whole_number(kind: Any, limit: object) -> None:
    with pytest.raises(Invalid, match=r"^limit must be a whole number \(int\), not "):
        kind(limit=limit)


@pytest.mark.parametrize("place", ["/proc/tenuto.db", "{folder}/a/tenuto.db", "{folder}/file/tenuto.db", "{folder}"])
async def test_a_file_that_cannot_be_is_told_by_the_setting_and_nothing_is_made(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InvalidSetting, match=r"^store: ") as excinfo:
        async with tenuto.open(f"sqlite:///{place.format(folder=tmp_path)}"):
            pass

    assert excinfo.value.setting == "store"
    assert _names(tmp_path) == ["file"]


async def test_a_detector_without_its_method_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"^detector: object has no method find\(scope, text, language\)"):
        async with tenuto.open("memory://", detector=object()):  # type: ignore[arg-type]
            pass


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("role", "narrator", "role must be a Role"),
        ("role", "user", "role must be a Role"),
        ("tokens", -1, "token count"),
        ("tokens", 1.5, "token count"),
        ("tokens", True, "token count"),
        ("metadata", None, "metadata"),
        ("extra", [], "extra fields"),
        ("parts", [], "parts must be a tuple, not list"),
        ("sent_at", "2026-01-01T00:00:00Z", "sent_at must be a time"),
        ("sent_at", SENT_AT.replace(tzinfo=None), "sent_at must be a time"),
        ("sent_at", SENT_AT.replace(tzinfo=timezone(timedelta(seconds=3208))), "time zone with seconds"),
    ],
)
def test_a_message_that_could_not_be_read_again_is_refused(field: str, value: Any, said: str) -> None:
    odd = says("hello", **{field: value})

    for unsound in (
        lambda: opening("s", user_messages=(odd,)),
        lambda: FinishTurn(reply=(odd,)),
        lambda: AppendBatch(id="b", messages=(odd,)),
        lambda: Rewrite(messages=(odd,)),  # type: ignore[arg-type]  # a draft stands for a message here
    ):
        with pytest.raises(Invalid, match=said):
            unsound()
