"""What the README and the docs show is true: every Python snippet runs as it stands, help is the program's own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
from datetime import timedelta
from functools import partial
from pathlib import Path
from runpy import run_path
from subprocess import PIPE
from typing import Any

import pytest
from redis.asyncio import Redis

import tenuto
from tenuto.model import Page
from tests.clock import FakeClock
from tests.journeys.terminal import own_settings
from tests.servers import RedisServer
from tests.warm_start import open_program

TOP = Path(__file__).parents[2]
READMES = [TOP / "README.md", TOP / "README.zh-CN.md"]
STARTS = [TOP / "docs" / "start" / f"first-conversation{language}.md" for language in ("", ".zh-CN")]
PAGES = [*READMES, *sorted((TOP / "docs").rglob("*.md"))]
SNIPPETS = [
    pytest.param(match[1], id=f"{page.name}:{number}")
    for page in PAGES
    if page not in READMES
    for number, match in enumerate(re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(snippet: str, tmp_path: Path) -> None:
    code, _, err = _run("-W", "error", "-c", snippet, cwd=tmp_path)

    assert code == 0, err


def _run(*args: str, **given: Any) -> tuple[int, str, str]:
    """What `python ARGS` ends with, and what it printed."""
    with open_program(*args, stdout=PIPE, stderr=PIPE, text=True, **given) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_the_commands_listed_are_the_programs_own() -> None:
    """After a change of the command line: python docs/generate_cli.py."""
    page = (TOP / "docs" / "reference" / "cli.md").read_text()

    assert run_path(str(TOP / "docs" / "generate_cli.py"))["render_page"](page) == page


def test_the_assistant_that_the_docs_write_answers(tmp_path: Path) -> None:
    page = (TOP / "docs" / "how-to" / "assistants.md").read_text()
    folder = tmp_path / "assistants"
    folder.mkdir()
    for name in ("toml", "py"):
        block = re.search(rf"^```{name}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        assert block is not None
        (folder / f"weather.{name}").write_text(block[1])
    command = r'^TENUTO_ASSISTANTS=assistants tenuto chat .* "(.*)"\n```\n\n```text\n(.*)$'
    [(asked, answer)] = re.findall(command, page, re.MULTILINE)

    env = {**os.environ, "TENUTO_ASSISTANTS": "assistants"}
    done = _run("-m", "tenuto", "chat", "--assistant", "weather", asked, cwd=tmp_path, env=env)

    assert done == (0, f"{answer}\n", "")


@pytest.mark.parametrize("page", STARTS, ids=lambda page: page.name)
async def test_the_dialogue_of_a_start_page_goes_as_it_is_told(page: Path) -> None:
    dialogue = _dialogue(page)
    assert len(dialogue) >= 2

    async with tenuto.open("memory://") as app:
        session = None
        for said, answer in dialogue:
            reply = await app.ask(app.scope(user="ann"), said, session_id=session)
            session = reply.session_id
            assert reply.text == answer


def _dialogue(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"^> \*\*(.+)\*\*\n> (.+)$", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", STARTS, ids=lambda page: page.name)
def test_the_assistant_of_a_start_page_remembers(page: Path, tmp_path: Path) -> None:
    """Two conversations, as the page types them; when it was said depends on the hour."""
    (tmp_path / "assistants").mkdir()
    (tmp_path / "assistants" / "barista.toml").write_text(fenced(page, "toml")[0])
    [block] = (block for block in fenced(page, "sh") if "--assistant barista" in block)
    [answer] = (block for block in fenced(page, "text") if quoted(block))
    asked = [shlex.split(line)[1:] for line in block.splitlines() if " chat " in line]

    env = own_settings(TENUTO_ASSISTANTS="assistants")
    done = [_run("-m", "tenuto", *words, cwd=tmp_path, env=env) for words in asked]

    assert [code for code, _, _ in done] == [0, 0]
    assert quoted(done[-1][1]) == quoted(answer) != []


def fenced(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def quoted(text: str) -> list[str]:
    return re.findall("“(.+?)”", text)


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_the_program_of_a_readme_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    program = fenced(page, "python")[0]

    code, out, err = _run("-W", "error", "-c", program, cwd=tmp_path, env=own_settings())

    assert code == 0, err
    assert quoted(out) == quoted(program) != []


async def test_before_and_after_differ_as_the_readme_says(valkey: RedisServer) -> None:
    """Its two functions, on a real Redis list and on tenuto."""
    before, after = fenced(TOP / "README.md", "py")
    clock, calls, answers = FakeClock(), list[Any](), list[str]()

    async def call_model(*given: Any) -> str:
        calls.append(given)
        if len(calls) == failing:
            raise ConnectionError
        if meeting is not None:
            await meeting.wait()
        return f"answer {len(calls)}"

    failing, meeting = 0, None
    valkey.flush()
    async with Redis.from_url(valkey.url) as client, tenuto.open("memory://", on_missing="adopt", clock=clock) as t:
        names = {"json": json, "redis": client, "t": t, "call_model": call_model}
        by_list = _defined(before, names)
        by_tenuto = _defined(after, names)

        async def roles(chat: str) -> str:
            """Who speaks, line by line, in the list and in tenuto."""
            lines = [json.loads(line)["role"][0] for line in await client.lrange(chat, 0, -1)]
            page = await t.sessions.messages(t.scope(user="ann"), chat, Page(limit=100))
            return "".join(lines) + " " + "".join(message.role[0] for message in page.messages)

        for _ in range(2):  # A client sends its request again.
            await by_list("again", "Hi")
            answers.append(await by_tenuto("ann", "again", "Hi", "1"))
        assert (await roles("again"), answers) == ("uaua ua", ["answer 2", "answer 2"])

        meeting = asyncio.Barrier(2)
        await asyncio.gather(by_list("both", "A"), by_list("both", "B"))
        meeting = None
        await asyncio.gather(by_tenuto("ann", "both", "A", "1"), by_tenuto("ann", "both", "B", "2"))
        assert await roles("both") == "uuaa uaua"

        for send in (partial(by_list, "dies", "Hi"), partial(by_tenuto, "ann", "dies", "Hi", "1")):
            failing = len(calls) + 1
            with pytest.raises(ConnectionError):
                await send()
            clock.advance(timedelta(minutes=2))
            await send()
        assert await roles("dies") == "uua ua"

        await by_list("again", "What did they say?")
        await by_tenuto("eve", "again", "What did they say?", "1")
        theirs, ours = calls[-2][0], calls[-1][1]
        assert (len(theirs), [message.text for message in ours]) == (5, ["What did they say?"])


def _defined(program: str, names: dict[str, Any]) -> Any:
    """The function that a program of a page defines."""
    exec(program, names)
    return names["answer"]


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)
def test_a_readme_shows_its_two_commands_first(page: Path) -> None:
    """The first two fenced blocks are the two commands, and no other make command stands in a block."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)

    assert [block.strip() for block in blocks[:2]] == ["make serve", "make test"]
    assert not any(line.startswith("make ") for block in blocks[2:] for line in block.splitlines())


@pytest.mark.parametrize("pair", [READMES, STARTS], ids=lambda pair: pair[0].name)
def test_a_page_and_its_translation_have_the_same_parts(pair: list[Path]) -> None:
    """The same headings, tables, commands and programs in the same order, with their own texts, and the same links."""
    english, chinese = (_skeleton(page.read_text()) for page in pair)

    assert english == chinese
    assert len(english) > 20


# Names in programs and commands, as the other page has them.
ENGLISH = {"lin": "ann", "hangzhou": "trip", ".zh =": ".en ="}


def _skeleton(page: str) -> list[str]:
    """What a page consists of but for its words: kinds of lines, code without texts and comments, targets of links."""
    pieces: list[str] = []
    for language, code, line in re.findall(r"^```(\w*)\n(.*?)^```|^([^\n]+)$", page, re.DOTALL | re.MULTILINE):
        if language == "text":
            pieces.append(language)
        elif code:
            bare = re.sub(r'("[^"]*"\s*:)|"[^"]*"|\s*# .*', r"\1", code)
            pieces.append(language + "\n" + re.sub("|".join(ENGLISH), lambda name: ENGLISH[name[0]], bare))
        elif kind := re.match(r"#+ |- |> |\|", line):
            pieces.append(kind[0])
    links = re.findall(r"""(?:\]\(|src(?:set)?=")([^)"#]+)""", page.replace(".zh-CN", ""))
    return [*pieces, *sorted(links)]


def test_every_page_the_docs_link_to_exists() -> None:
    pages = [*PAGES, TOP / "CONTRIBUTING.md"]
    broken = [
        f"{page.name} -> {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]

    assert broken == []


def test_every_picture_is_small_and_shown() -> None:
    pattern = re.compile(r"""(?:src|srcset)="([^"]+\.(?:webp|svg))\"""")
    shown = {(page.parent / name).resolve() for page in PAGES for name in pattern.findall(page.read_text())}
    pictures = set((TOP / "docs" / "images").iterdir())

    assert shown == pictures
    assert [picture.name for picture in pictures if picture.stat().st_size > 60_000] == []


def test_the_routes_of_the_http_page_are_those_of_the_server() -> None:
    """After a change of a route: python docs/generate_routes.py."""
    render_page = run_path(str(TOP / "docs" / "generate_routes.py"))["render_page"]
    page = (TOP / "docs" / "reference" / "http.md").read_text()

    assert page == render_page(page)


def test_the_table_of_parameters_is_that_of_the_code() -> None:
    """After a change of a parameter: python docs/generate_parameters.py."""
    render_page = run_path(str(TOP / "docs" / "generate_parameters.py"))["render_page"]
    page = (TOP / "docs" / "how-to" / "models.md").read_text()

    assert page == render_page(page)


def test_every_module_that_the_docs_name_exists() -> None:
    for page in [TOP / "CONTRIBUTING.md", *sorted((TOP / "docs" / "ideas").glob("*.md"))]:
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", page.read_text()):
            found = any(
                next(TOP.glob(f"{root}/{name}"), None) for root in ("src/tenuto/**", "tests/**", "bench/**", ".")
            )
            assert found, f"{page.name} names {name}"


def test_both_pages_draw_the_same_rooms() -> None:
    """The drawing stands where a contributor begins, and where the rooms are explained."""
    pages = [TOP / "CONTRIBUTING.md", TOP / "docs" / "ideas" / "architecture.md"]
    first, second = (re.findall(r"```\n(cli .*?)```", page.read_text(), re.DOTALL) for page in pages)

    assert first == second
    assert len(first) == 1


def test_every_requirement_that_is_built_has_tests() -> None:
    page = (TOP / "docs" / "reference" / "requirements.md").read_text()
    built = re.findall(r"^\| (\w+) \|.*\| (?:built|part) \|$", page, re.MULTILINE)
    marks = [
        mark
        for path in (TOP / "tests").rglob("*.py")
        for mark in re.findall(r"requirement\(([^)]*)\)", path.read_text())
    ]
    shown = set(re.findall(r'"(\w+)"', " ".join(marks)))

    assert len(built) > 100
    assert [number for number in built if number not in shown] == []
