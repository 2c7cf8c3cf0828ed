"""Assistants of one's own: files in a folder, tools that are plain functions, and errors that name file and field."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

import tenuto
from tenuto.app import open_app
from tenuto.assistants import Assistant
from tenuto.assistants.custom import load_folder
from tenuto.assistants.function_tools import make_tool, offline
from tenuto.errors import AssistantMissing, Invalid, InvalidSetting
from tenuto.model.generation import ToolContext, ToolOutput
from tenuto.model.policy import OnMissing, preset
from tenuto.model.prompt import Language, LayoutName
from tenuto.ports import OfflineTool
from tenuto.settings import Settings
from tests.samples import ANN

TURN = ToolContext(
    scope=ANN, session=None, question="?", language=Language.ENGLISH, now=datetime(2026, 11, 1, tzinfo=UTC)
)
WEATHER = '''
"""Weather, made up."""


def weather(city: str, days: int = 1) -> dict[str, object]:
    """The weather in a city for some days."""
    return {"city": city, "days": days, "sky": "clear"}
'''
TOML = """
title.en = "Weather"
description.en = "Knows the sky."
system.en = "You tell the weather."
system.zh = "你预报天气。"
preset = "channel"
tools = ["weather"]
sessions.on_missing = "new_id"
context.compress_over = 40
prompt.budget = 4000
prompt.layout = "question"

[personas.ann]
name.en = "Ann"
system.en = "You are Ann."
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(text)
    return folder


async def test_a_toml_file_is_an_assistant(tmp_path: Path) -> None:
    (weather,) = load_folder(write(tmp_path, weather_toml=TOML, weather_py=WEATHER))

    assert weather.name == "weather"
    assert weather.system_prompt(weather.persona("ann"), Language.ENGLISH) == "You tell the weather.\n\nYou are Ann."
    assert weather.policies.sessions.on_missing is OnMissing.NEW_ID
    assert weather.policies.sessions.stale_after is not None
    assert weather.policies.context.compress_over == 40
    assert (weather.prompt.budget, weather.prompt.layout) == (4000, LayoutName.QUESTION)
    (tool,) = weather.tools
    assert tool.spec.parameters["required"] == ["city"]
    assert (await tool.run({"city": "Rome"}, TURN)).output == {"city": "Rome", "days": 1, "sky": "clear"}


def test_a_python_file_is_an_assistant(tmp_path: Path) -> None:
    source = (
        "from tenuto.assistants import Assistant\n"
        "def assistant():\n    return Assistant(name='mine', system={'en': 'Mine.'})\n"
    )

    (mine,) = load_folder(write(tmp_path, mine_py=source))

    assert mine.name == "mine"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a_toml": "system = "}, "a.toml: is not TOML"),
        ({"a_toml": "sytem.en = 'x'"}, "a.toml: sytem is unknown; did you mean system"),
        ({"a_toml": "title.en = 'x'"}, "a.toml: .*system"),
        ({"a_toml": "system.en = 'x'\npreset = 'none'"}, "a.toml: preset: there is no 'none'"),
        ({"a_toml": "system.fr = 'x'"}, "a.toml: "),
        ({"a_toml": "system.en = 'x'\nsessions.lease = 'soon'"}, "a.toml: "),
        ({"a_toml": "system.en = 'x'\ncontext.windows = 3"}, "a.toml: windows is unknown"),
        ({"a_toml": "system.en = 'x'\nsessions.retention.idel = 1"}, "a.toml: idel is unknown; did you mean idle"),
        ({"a_toml": "system.en = 'x'\nsessions.retention = 1"}, "a.toml: retention has fields of its own: idle, touch"),
        ({"a_toml": "system.en = 'x'\nprompt.budget = 10"}, "a.toml: budget"),
        ({"a_toml": "system.en = 'x'\ntools = ['none']"}, "a.toml: tools: there is no function none in a.py"),
        ({"a_toml": "system.en = 'x'\ntools = ['no.such:f']"}, "a.toml: tools: no.such cannot be imported: No module"),
        ({"a_toml": "system.en = 'x'\npersonas.b.nme.en = 'B'"}, "a.toml: .*nme"),
        ({"a_toml": "system.en = 'x'\nprompt.bugdet = 9000"}, "a.toml: .*bugdet"),
        ({"a_toml": "system.en = 'x'\ntools = ['f']", "a_py": "def f(x): ..."}, "a.toml: f: x has no type"),
        ({"a_toml": "system.en = 'x'\ntools = ['f']", "a_py": "1/0"}, "a.py: raises ZeroDivisionError"),
        (
            {"a_toml": "system.en = 'x'\ntools = ['f']", "a_py": "def f(tags: list[str] = ['a']) -> str: ..."},
            "a.toml: f: cannot be a tool",
        ),
        (
            {
                "a_toml": "system.en = 'x'\ntools = ['f']",
                "a_py": "from functools import partial\nf = partial(print, 1)",
            },
            "a.toml: tools: a partial has no name",
        ),
        (
            {"a_toml": "system.en = 'x'\ntools = ['f', 'f']", "a_py": "def f(x: int) -> int: return x"},
            "a.toml: assistant a: has two tools called 'f'",
        ),
        ({"a_toml": "system.en = 'x'\nrelevance = 7"}, "a.toml: assistant a: relevance is from 0 to 1, not 7"),
        ({"a_toml": "system.en = 'x'\nrelevance = -3"}, "a.toml: assistant a: relevance is from 0 to 1, not -3"),
        ({"a_toml": "system.en = 'x'\nrelevance = nan"}, "a.toml: assistant a: relevance"),
        ({"a_py": "x = 1\ndef f(:\n"}, "a.py: raises SyntaxError at line 2"),
        ({"a_py": "x = 1\ny = nope"}, "a.py: raises NameError at line 2 when it is read: name 'nope' is not defined"),
        ({"a_py": "def assistant():\n    return nope"}, "a.py: assistant.. raises NameError at line 2: name 'nope'"),
        (
            {
                "a_py": "from tenuto.assistants import Assistant\n"
                "def assistant(): return Assistant(name='x', system='You help.')"
            },
            "a.py: assistant.. returns an Assistant whose system is not a Mapping",
        ),
        ({"a_py": "import sys\nsys.exit(1)"}, "a.py: raises SystemExit at line 2"),
        ({"a_py": "x = 1\n1/0"}, "a.py: raises ZeroDivisionError at line 2 when it is read: divi"),
        ({"a_py": "x = 1\nimport nowhere.x"}, r"a.py .No module named 'nowhere' at line 2. needs a package"),
        ({"a_py": "x = 1"}, "a.py: defines no function assistant"),
        ({"a_py": "def assistant(): return 1"}, "a.py: assistant.. returns no Assistant"),
        ({"a_py": "def assistant(): 1/0"}, "a.py: assistant.. raises ZeroDivisionError at line 1"),
    ],
)
def test_what_does_not_fit_is_said_with_file_and_field(tmp_path: Path, files: dict[str, str], said: str) -> None:
    (broken,) = load_folder(write(tmp_path, **files))

    assert (broken.name, broken.file) == ("a", "a.toml" if "a_toml" in files else "a.py")
    assert broken.missing is not None
    assert re.match(said, broken.missing.cause), broken.missing.cause
    assert broken.missing.advice.endswith("then start again")
    with pytest.raises(AssistantMissing, match="cannot be loaded"):
        broken.check_installed()


def test_a_folder_that_is_named_from_here_has_the_lines_of_its_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, a_py="x = 1\ny = nope")
    monkeypatch.chdir(tmp_path)

    (broken,) = load_folder(Path())

    assert broken.missing is not None
    assert "NameError at line 2" in broken.missing.cause


def test_a_broken_file_leaves_the_others_alone_under_the_name_that_it_has(tmp_path: Path) -> None:
    named = "name = 'sky'\nsystem.en = 'x'\ntools = ['nowhere']"
    loaded = load_folder(write(tmp_path, a_py="1/0", b_toml=named, c_toml="system.en = 'x'", d_toml="system = "))

    assert [(each.name, each.missing is not None) for each in loaded] == [
        ("a", True),
        ("sky", True),
        ("c", False),
        ("d", True),
    ]


def test_a_part_of_a_policy_keeps_the_fields_that_a_file_does_not_name(tmp_path: Path) -> None:
    text = "system.en = 'x'\npreset = 'npc'\nsessions.retention.idle = 3600"
    (mine,) = load_folder(write(tmp_path, a_toml=text))

    assert mine.policies.sessions.retention == replace(preset("npc").sessions.retention, idle=timedelta(hours=1))


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no folder"):
        load_folder(tmp_path / "none")


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


def order(name: str, size: Size, extras: list[str], spicy: bool = False, note: str | None = None) -> str:
    """Order a dish."""
    return f"{size.value} {name} {extras} {spicy} {note}"


async def test_types_become_the_schema_and_check_the_arguments() -> None:
    tool = make_tool(order)

    assert tool.spec.description == "Order a dish."
    assert set(tool.spec.parameters["required"]) == {"name", "size", "extras"}
    assert (await tool.run({"name": "soup", "size": "small", "extras": []}, TURN)).output == "small soup [] False None"
    for wrong in ({}, {"name": 1}, {"name": "soup", "size": "huge", "extras": []}, {"other": 1}):
        with pytest.raises(Invalid):
            await tool.run(wrong, TURN)


async def test_a_function_may_ask_for_the_turn_wait_and_answer_as_it_likes() -> None:
    async def mine(topic: Literal["orders"], turn: ToolContext) -> ToolOutput:
        return ToolOutput(output=f"{topic} of {turn.scope.user}", data={"user": turn.scope.user})

    tool = make_tool(mine)

    assert "turn" not in tool.spec.parameters["properties"]
    assert (await tool.run({"topic": "orders"}, TURN)).data == {"user": "ann"}


def test_a_function_can_serve_without_a_model() -> None:
    @offline(
        plan=lambda turn: {"city": "Rome"} if "Rome" in turn.question else None, render=lambda output, _: str(output)
    )
    def weather(city: str) -> str:
        """The weather."""
        return f"clear in {city}"

    tool = make_tool(weather)

    assert isinstance(tool, OfflineTool)
    assert tool.plan(TURN) is None
    assert not isinstance(make_tool(order), OfflineTool)


@pytest.mark.parametrize("function", [lambda *words: 1, lambda word: 1])
def test_a_function_no_model_could_call_is_refused(function: object) -> None:
    with pytest.raises(InvalidSetting):
        make_tool(function)  # type: ignore[arg-type]  # a function of any shape


@pytest.mark.parametrize(
    "files",
    [
        {"odd_toml": "name = 'other'\nsystem.en = 'x'\nmodel = 'zzz:q'"},
        {
            "odd_py": "from tenuto.assistants import Assistant\n"
            "def assistant(): return Assistant(name='other', model='zzz:q')"
        },
    ],
    ids=["toml", "py"],
)
async def test_an_absent_model_is_missed_by_the_file_that_names_it(tmp_path: Path, files: dict[str, str]) -> None:
    async with open_app(Settings(store="memory://", assistants=str(write(tmp_path, **files)))) as app:
        missing = (await app.chat()).assistants.find("other").missing

    assert missing is not None
    assert re.match(r"odd\.(toml|py): model: .*zzz", missing.cause)
    assert missing.advice.startswith("set what it names, or correct the file")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model = 'openai:gpt-5.4-mini'", "odd.toml: model: openai:gpt-5.4-mini needs OPENAI_API_KEY"),
        ("prompt.budget = 1100", "odd.toml: budget"),
        ("privacy_also = ['ADRESS']", "odd.toml: privacy_also: 'ADRESS' is not a type"),
    ],
)
async def test_what_a_file_asks_for_in_vain_stops_its_assistant_alone(
    tmp_path: Path, text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    write(tmp_path, odd_toml=f"system.en = '{'x ' * 200}'\n{text}")
    async with open_app(Settings(store="memory://", assistants=str(tmp_path))) as app:
        chat = await app.chat()
        found = {each.name: each.missing for each in chat.assistants}
        answered = await app.ask(app.scope(), "Hi")

    assert found["odd"] is not None
    assert found["odd"].cause.startswith(says)
    assert found["general"] is None
    assert answered.text


@pytest.mark.parametrize(
    ("files", "default", "says"),
    [
        (
            {"mine_py": "y = nope"},
            "mine",
            "assistant: the default, 'mine', cannot be loaded: mine.py: raises NameError",
        ),
        (
            {"mine_py": "y = nope"},
            "ours",
            "assistant: there is no 'ours'; .* cannot be loaded: mine.py: raises NameErr",
        ),
        (
            {"mine_toml": "system.en = 'x'\nmodel = 'z:q'"},
            "mine",
            "assistant: the default, 'mine', .* mine.toml: model",
        ),
        ({"a_toml": "name = 'b'\nsystem.en = 'x'", "b_py": "y = nope"}, "general", "two are called 'b' .b.py: raises"),
        ({"a_toml": "name = 'npc'\nsystem.en = 'x'"}, "general", "two are called 'npc'"),
    ],
)
async def test_what_still_stops_the_start(tmp_path: Path, files: dict[str, str], default: str, says: str) -> None:
    settings = Settings(store="memory://", assistants=str(write(tmp_path, **files)), assistant=default)
    async with open_app(settings) as app:
        with pytest.raises(InvalidSetting, match=says):
            await app.chat()


@pytest.mark.requirement("T20")
async def test_assistants_of_ones_own_keep_the_limits_of_the_installation(tmp_path: Path) -> None:
    """`busy_wait` and its fellows hold for every session here, unless an assistant names its own."""
    plain, named = 'system.en = "Hm."', 'system.en = "Hm."\nsessions.busy_wait = "PT3S"'
    write(tmp_path, usual_toml=plain, named_toml=named)
    given = Assistant(name="given", system={Language.ENGLISH: "Hm."})
    limits: dict[str, Any] = {"busy_wait": timedelta(seconds=30), "max_message_bytes": 2048}

    async with tenuto.open("memory://", assistants=[given], **limits) as t:
        in_code = (await t.chat()).assistants.find("given").policies.sessions
    async with open_app(Settings(store="memory://", assistants=str(tmp_path), **limits)) as app:
        known = (await app.chat()).assistants
        read, own = (known.find(name).policies.sessions for name in ("usual", "named"))

    assert {policy.busy_wait for policy in (in_code, read)} == {timedelta(seconds=30)}
    assert own.busy_wait == timedelta(seconds=3)
    assert {policy.max_message_bytes for policy in (in_code, read, own)} == {2048}
