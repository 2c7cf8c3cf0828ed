"""The library in the hands of somebody without a type checker: one sentence that names the argument."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import Invalid, InvalidSetting
from tenuto.model import Batch, Closing, Rewriting
from tests.samples import SENT_AT, opening, says

CALLS: dict[str, tuple[Callable[[Any, Any], Awaitable[object]], str]] = {
    "ask nothing": (lambda t, ann: t.ask(ann, None), "the message must be a text (str), not NoneType"),
    "ask a number": (lambda t, ann: t.ask(ann, 5), "the message must be a text (str), not int"),
    "ask bytes": (lambda t, ann: t.ask(ann, b"secret words"), "the message must be a text (str), not bytes"),
    "session": (lambda t, ann: t.ask(ann, "hi", session_id=5), "the session id must be a text (str), not int"),
    "assistant": (lambda t, ann: t.ask(ann, "hi", assistant=5), "the assistant id must be a text (str), not int"),
    "persona": (lambda t, ann: t.ask(ann, "hi", persona=["x"]), "the persona id must be a text (str), not list"),
    "key": (lambda t, ann: t.ask(ann, "hi", key=5), "the key must be a text (str), not int"),
    "ask no scope": (lambda t, _: t.ask("ann", "hi"), "scope must be a Scope, as scope(user=…) makes it, not str"),
    "begin no scope": (
        lambda t, _: t.begin(None, "hi"),
        "scope must be a Scope, as scope(user=…) makes it, not NoneType",
    ),
    "begin nothing": (lambda t, ann: t.begin(ann, None), "the message must be a text (str), not NoneType"),
    "begin session": (
        lambda t, ann: t.begin(ann, "hi", session_id=5),
        "the session id must be a text (str), not int",
    ),
}


@pytest.mark.parametrize(("call", "said"), CALLS.values(), ids=CALLS)
async def test_what_is_no_text_is_told_in_a_sentence(
    call: Callable[[Tenuto, Any], Awaitable[object]], said: str
) -> None:
    async with tenuto.open("memory://") as t:
        with pytest.raises(Invalid) as refused:
            await call(t, t.scope(user="ann"))

    assert str(refused.value) == said


@pytest.mark.parametrize("named", [{"user": 5}, {"user": b"ann"}, {"tenant": None}, {"site": 0}, {"chat": 5}], ids=str)
async def test_a_scope_is_made_of_texts(named: dict[str, Any]) -> None:
    (what,) = named
    async with tenuto.open("memory://") as t:
        with pytest.raises(Invalid, match=f"the {what} id must be a text"):
            t.scope(**named)


@pytest.mark.parametrize("place", ["/proc/tenuto.db", "{folder}/a/tenuto.db", "{folder}/file/tenuto.db", "{folder}"])
async def test_a_file_that_cannot_be_is_told_by_the_setting_and_nothing_is_made(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InvalidSetting, match=r"^store: ") as refused:
        async with tenuto.open(f"sqlite:///{place.format(folder=tmp_path)}"):
            pass

    assert refused.value.setting == "store"
    assert _names(tmp_path) == ["file"]


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
        lambda: opening("s", words=(odd,)),
        lambda: Closing(reply=(odd,)),
        lambda: Batch(id="b", messages=(odd,)),
        lambda: Rewriting(messages=(odd,)),  # type: ignore[arg-type]  # a draft stands for a message here
    ):
        with pytest.raises(Invalid, match=said):
            unsound()
