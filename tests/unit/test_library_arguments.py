"""The library in the hands of somebody without a type checker: one sentence that names the argument."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import Invalid, InvalidSetting

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
