"""What the docs show besides whole Python programs: shell lines, requests, files, parts of programs."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import AsyncExitStack, redirect_stdout
from importlib.metadata import metadata
from io import StringIO
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import httpx
import pytest

import tenuto
from tenuto.access import KeyRole
from tenuto.model.plan import parse_plan
from tenuto.model.privacy import Mode
from tenuto.settings import Settings, read_settings
from tenuto.wiring.channels import channel_apps
from tests.command_lines import check_command
from tests.journeys.http_service import http_service
from tests.journeys.terminal import own_settings
from tests.servers.loopback import serving
from tests.walkthrough import FOLLOWED, SET_UP, File, steps
from tests.warm_start import open_program

TOP = Path(__file__).parents[2]
PAGES = [TOP / "README.md", TOP / "README.zh-CN.md", *sorted((TOP / "docs").rglob("*.md"))]
# Programs of others, which the docs show how to call.
ELSEWHERE = {"cd", "cp", "createdb", "createuser", "docker", "echo", "git", "install", "python", "python3", "systemctl"}
ASSIGNED = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}(?: title=\"[^\"]+\")?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def shell_lines(page: Path) -> Iterator[list[str]]:
    """The commands of a page's shell blocks as words, each part of a pipe by itself; without here-documents."""
    for block in blocks(page, "sh"):
        begun = ""
        for line in re.sub(r"<<'END'.*?^END$", "", block, flags=re.DOTALL | re.MULTILINE).splitlines():
            begun += line.removesuffix("\\") + " "
            try:
                words = shlex.split(begun)
            except ValueError:  # A quoted text goes on.
                continue
            if not line.endswith("\\"):
                begun = ""
                yield from split_pipe(words)


def split_pipe(words: list[str]) -> Iterator[list[str]]:
    """The commands of a pipe."""
    while "|" in words:
        at = words.index("|")
        yield words[:at]
        words = words[at + 1 :]
    if words:
        yield words


def check_line(words: list[str], extras: set[str], targets: set[str]) -> None:
    """Whether the line names settings, commands, extras and targets that exist."""
    while words and (words[0] == "export" or ASSIGNED.fullmatch(words[0])):
        if (named := ASSIGNED.fullmatch(words.pop(0))) and named[1].startswith("TENUTO_"):
            assert named[1].removeprefix("TENUTO_").lower() in Settings.__struct_fields__
    match words:
        case []:
            pass
        case [program, *rest] if program.endswith("tenuto"):
            check_command(rest)
        case ["docker", "compose", "run", "--rm", "server-1", *rest]:
            check_command(rest)
        case ["uvx", "--from", ".", "tenuto", *rest]:
            check_command(rest)
        case [program, "install", *rest] if program.endswith("pip"):
            named_extras = re.findall(r"^\.\[([\w,-]+)\]$", "\n".join(rest), re.MULTILINE)
            assert {extra for some in named_extras for extra in some.split(",")} <= extras
        case [program, "uninstall", "--yes", package] if program.endswith("pip"):
            assert f"{package}==" in (TOP / "requirements" / "console.txt").read_text()
        case ["make", target]:
            assert target in targets
        case [program, *_]:
            assert program in ELSEWHERE | {"curl"}


def test_every_shell_line_names_what_exists() -> None:
    extras = set(metadata("tenuto").get_all("Provides-Extra") or ())
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    seen = 0
    for page in PAGES:
        # No index has the package yet: it is installed from the clone, by `pip install '.[redis]'`.
        assert not re.search(r"""pip install ["']?tenuto""", page.read_text()), page.name
        for words in shell_lines(page):
            # An interactive zsh takes what begins with # for further words of the command.
            assert not any(word.startswith("#") for word in words), f"{page.name}: {shlex.join(words)}"
            if page in FOLLOWED and words[0] not in SET_UP:
                continue
            seen += 1
            try:
                check_line(list(words), extras, targets)
            except Exception as error:
                pytest.fail(f"{page.name}: {shlex.join(words)}: {error!r}")

    assert seen > 100


def test_the_table_of_extras_is_complete() -> None:
    """Those for developers aside, and `all`, which is their sum."""
    page = (TOP / "docs" / "how-to" / "faq.md").read_text()
    listed = re.findall(r"^\| `([\w-]+)` \|.*\]\(", page, re.MULTILINE)

    assert sorted(listed) == sorted(set(metadata("tenuto").get_all("Provides-Extra") or ()) - {"all", "dev", "test"})


def test_every_message_that_troubleshooting_names_is_the_programs_own() -> None:
    """Between the places that vary; fields of replies and words of the system are no messages of ours."""
    files = (*(TOP / "src" / "tenuto").rglob("*.py"), TOP / "src" / "tenuto" / "server" / "console" / "words" / "en.js")
    source = "\n".join(path.read_text() for path in files)
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    page = (TOP / "docs" / "how-to" / "troubleshooting.md").read_text()
    seen = [
        cell for row in re.findall(r"^\| (.*?) \|", page, re.MULTILINE) for cell in re.findall("[`“](.+?)[`”]", row)
    ]
    pieces = {piece.strip() for text in seen for piece in text.split("…")} - {"", "Address already in use"}
    messages = {piece for piece in pieces if not piece.startswith('"')}

    assert len(messages) > 40
    assert {message for message in messages if message not in source} == set()


def test_every_file_that_the_docs_show_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SHOP_SECRET", "HELPDESK_SECRET", "HELPDESK_ENCRYPT_KEY", "GUIDE_SECRET"):
        monkeypatch.setenv(variable, "0123456789abcdef")

    def shown(page: str) -> Path:
        (tmp_path / page).write_text("\n".join(blocks(TOP / "docs" / "how-to" / f"{page}.md", "toml")))
        return tmp_path / page

    assert len(parse_plan({"steps": tomllib.loads(shown("tasks").read_text())["steps"]}).steps) == 3
    assert len(channel_apps(read_settings({}, channels=str(shown("channels"))))) == 1
    assert len(channel_apps(read_settings({}, channels=str(shown("lark"))))) == 2
    assert set(tomllib.loads(shown("encryption").read_text())) == {"current", "keys", "tenants"}
    for page in PAGES:
        for text in blocks(page, "json"):
            shown_json = json.loads(text)
            for server in shown_json.get("mcpServers", {}).values() if isinstance(shown_json, dict) else ():
                check_command(server.get("args", ["mcp"]))


def request(words: list[str], values: dict[str, str]) -> dict[str, Any]:
    """A curl command as what httpx takes, with the ids of earlier answers."""
    asked: dict[str, Any] = {"headers": {}, "method": "GET"}
    rest = iter(words[1:])
    for word in rest:
        match word:
            case "-H":
                name, _, value = next(rest).partition(": ")
                asked["headers"][name] = fill(value, values)
            case "-d":
                asked["content"] = fill(next(rest), values).encode()
                asked["method"] = "POST" if asked["method"] == "GET" else asked["method"]
            case "-X":
                asked["method"] = next(rest)
            case _ if ":8765" in word:
                asked["url"] = fill(word.partition(":8765")[2], values)
            case ">":
                next(rest)
    return asked


def fill(text: str, values: dict[str, str]) -> str:
    """The text with ids instead of their placeholders."""
    text = re.sub(r"tnt_…|\$\w+_KEY\b", lambda _: values["key"], text)
    text = re.sub(r"\b[0-9a-f]{4}…", lambda _: values["key id"], text)
    return re.sub(r"<from the answer>|\b(?:SESSION|TRACE_ID|TURN_ID|TASK|CODE|ID)\b", lambda m: values[m[0]], text)


def remember(answer: httpx.Response, values: dict[str, str]) -> None:
    """Keep the ids that an answer names; those of visitors and shoppers are for their own pages."""
    body = answer.json()
    names = {"sessionId": "<from the answer>", "code": "CODE"}
    if "X-User-ID" in answer.request.headers:
        names |= {"session_id": "SESSION", "trace_id": "TRACE_ID", "turn_id": "TURN_ID"}
    values |= {names[key]: body[key] for key in names if body.get(key)}
    if "secret" in body:
        values["key id"] = body["key"]["id"]
    if answer.request.method == "POST" and "id" in body:
        values["TASK" if answer.request.url.path == "/v1/tasks" else "ID"] = body["id"]


async def ask(http: httpx.AsyncClient, words: list[str], values: dict[str, str]) -> httpx.Response:
    """Do what a curl command does; a step that a person answers is waited for, an endless stream left."""
    asked = request(words, values)
    async with http.stream(**asked) as answer:
        if asked["url"].endswith("/events"):
            await anext(line async for line in answer.aiter_lines() if line == "event: step.waiting")
        else:
            await answer.aread()
    if answer.headers.get("content-type", "").startswith("application/json"):
        remember(answer, values)
    return answer


# What requests with a key are about.
MAIL = """curl :8765/v1/chat -H 'X-User-ID: ann' -H 'Authorization: Bearer tnt_…' -d '{"message": "Hi from a@b.org"}'"""
TASK = """curl :8765/v1/tasks -H 'X-User-ID: ann' -H 'Authorization: Bearer tnt_…' -d '{"type": "review"}'"""
# Whose key a page shows a request with; else an admin's.
KEYS: dict[str, dict[str, Any]] = {
    "agents.md": {"user": "ann", "agent": "reader"},
    "privacy-policies.md": {"role": KeyRole.REVEAL},
}


async def test_every_request_that_the_docs_show_is_answered() -> None:
    """On a server in memory with the agents of `deploy/`: page after page, programs, then requests with keys."""
    values: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        agents, key = str(TOP / "deploy" / "agents"), "00" * 32
        service = await stack.enter_async_context(
            http_service(agents=agents, privacy_message=Mode.PSEUDONYM, privacy_key=key)
        )
        address = await stack.enter_async_context(serving(service.app))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=address, timeout=60))
        for page, words in curl_lines(with_key=False):
            await check_answered(http, page, words, values)
        for name in ("how-to/openai.md", "how-to/anthropic.md", "reference/http.md"):
            for program in blocks(TOP / "docs" / name, "py"):
                text = re.sub(r"(localhost|127\.0\.0\.1):8765", address.removeprefix("http://"), program)
                with redirect_stdout(StringIO()) as printed:
                    await asyncio.to_thread(exec, compile(text, name, "exec"), {})
                assert printed.getvalue().splitlines() == re.findall(r"^ *print\(.*\)  # (.*)$", program, re.MULTILINE)
        _, values["key"] = await service.keys.create(tenant="local")
        service.ticks.now += 2  # The first key has ended open mode by now.
        for line in (MAIL, TASK):
            await ask(http, shlex.split(line), values)
        for page, words in curl_lines(with_key=True):
            owner = KEYS.get(page.name, {"role": KeyRole.ADMIN})
            _, values["key"] = await service.keys.create(tenant="local", **owner)
            await check_answered(http, page, words, values)


def curl_lines(*, with_key: bool) -> Iterator[tuple[Path, list[str]]]:
    """The requests of all pages, but for one that takes its headers from another program."""
    for page in PAGES:
        for words in shell_lines(page) if page not in FOLLOWED else ():
            if words[0] == "curl" and "@-" not in words and with_key == any("Bearer" in word for word in words):
                yield page, words


async def check_answered(http: httpx.AsyncClient, page: Path, words: list[str], values: dict[str, str]) -> None:
    """Whether the request of a page succeeds."""
    answer = await ask(http, words, values)
    assert answer.is_success, f"{page.name}: {shlex.join(words)}: {answer.status_code} {answer.text}"


async def test_the_policy_that_the_docs_write_needs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(blocks(TOP / "docs/how-to/privacy-policies.md", "toml")[0])

    async with tenuto.open("memory://", privacy_file=str(tmp_path / "policy.toml")) as t:
        acme = t.scope(tenant="acme", user="ann")
        session = await t.finish(await t.begin(acme, "I am S-204816, and write to help@shop.example."), "Noted.")
        [asked, _] = (await t.sessions.messages(acme, session.id)).messages

    assert asked.text == "I am [REDACTED_STAFF], and write to help@shop.example."


def test_the_plan_that_the_docs_write_runs(tmp_path: Path) -> None:
    """Another terminal gives the approval, by the command that the first one shows."""
    page = (TOP / "docs" / "how-to" / "tasks.md").read_text()
    for step in steps(page):
        if isinstance(step, File):
            (tmp_path / step.name).parent.mkdir(exist_ok=True)
            (tmp_path / step.name).write_text(step.text)
    [shown] = re.findall(r"^\$ TENUTO_AGENTS=agents tenuto (tasks run .*)\n((?:.+\n)+)```", page, re.MULTILINE)
    env, lines = own_settings(TENUTO_AGENTS="agents"), []
    command = ("-m", "tenuto", *shown[0].split())
    with open_program(*command, cwd=tmp_path, env=env, stdout=PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                lines.append(line)
                if told := re.search(r"\(tenuto (tasks answer .*)\)", line):
                    answer = ("-m", "tenuto", *told[1].replace("VALUE", "yes").split())
                    with open_program(*answer, cwd=tmp_path, env=env, stdout=DEVNULL) as answering:
                        assert answering.wait(timeout=120) == 0
        except BaseException:
            running.kill()  # Else the end of the block waits for it.
            raise

    assert re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "TASK", "".join(lines)) == shown[1]


async def test_the_agent_that_the_docs_write_works(tmp_path: Path) -> None:
    (tmp_path / "reader.py").write_text(blocks(TOP / "docs" / "how-to" / "agents.md", "python")[0])
    async with tenuto.open("memory://", agents=str(tmp_path)) as t:
        engine, ann = await t.engine(), t.scope(user="ann")
        plan = parse_plan({"steps": [{"id": "read", "agent": "reader"}]})
        task = await engine.submit(ann, tenuto.NewTask(type="review", goal="the notice period"), plan)
        async for _ in t.tasks.watch(ann, task.id):
            pass

        assert (await engine.status(ann, task.id)).task.result == {"read": {"clauses": 1}}
