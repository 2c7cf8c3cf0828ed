"""The doctor's findings, well and ill."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

import tenuto
from tenuto import extras
from tenuto.app import Tenuto
from tenuto.cli import program
from tenuto.cli.checks import Finding, check_sqlite_file, versions
from tenuto.cli.effective_settings import duration, effective, mask_password
from tenuto.extras import install_line
from tenuto.ports import utc_now
from tenuto.settings import Settings
from tenuto.stores.sqlite import SqliteRecords
from tenuto.stores.sqlite._schema import APPLICATION_ID
from tests.servers.openai_server import SILENCE, Reply, refusal, start_model_server, words

pytestmark = pytest.mark.usefixtures("own_environment")


@pytest.fixture(autouse=True)
def _used_before(own_environment: None) -> None:
    """The default store exists, as a first command leaves it: the doctor makes none."""
    Path("data").mkdir()
    asyncio.run(_make(Path("data", "tenuto.db")))


async def _make(file: Path) -> None:
    await (await SqliteRecords.open(file)).close()


def examined(*args: str, env: Mapping[str, str] | None = None) -> tuple[int, dict[str, dict[str, Any]], dict[str, str]]:
    """The exit code, the findings by name, and the settings shown."""
    result = CliRunner().invoke(program, ["doctor", "--json", *args], env=dict(env or {}), catch_exceptions=False)
    answer = json.loads(result.stdout)
    assert answer["ok"] == (result.exit_code == 0)
    return result.exit_code, {check["name"]: check for check in answer["checks"]}, answer["settings"]


def test_a_new_installation_is_well() -> None:
    code, checks, settings = examined()

    assert code == 0
    assert {check["status"] for name, check in checks.items() if name not in ("auth", "disk")} == {"ok"}
    assert "journal_mode wal, synchronous full" in checks["durability"]["message"]
    assert checks["auth"]["status"] == "warning"
    assert (settings["retention"], settings["on_missing"]) == ("30d", "error")


def test_a_store_that_does_not_exist_yet_is_told_and_not_made(tmp_path: Path) -> None:
    """What needs no store is checked all the same."""
    agents = tmp_path / "agents"
    agents.mkdir()
    for path in ("data/tenuto.db", "data"):
        (Path(path).rmdir if path == "data" else Path(path).unlink)()

    code, checks, _ = examined(env={"TENUTO_AGENTS": str(agents)})
    elsewhere = examined("--store", "sqlite:///other.db")[1]

    assert (code, checks["store"]["status"]) == (0, "warning")
    assert checks["store"]["message"] == f"the store {tmp_path}/data/tenuto.db does not exist yet"
    assert "`tenuto serve` or `tenuto chat` makes it" in checks["store"]["advice"]
    assert {"model", "tasks", "privacy", "auth"} <= set(checks)
    assert elsewhere["store"]["message"].endswith("/other.db does not exist yet")
    assert [each.name for each in tmp_path.iterdir()] == ["agents"]


def test_an_app_without_a_preset_is_an_error_before_the_server_starts() -> None:
    code, checks, _ = examined(env={"TENUTO_APPS": "codex,curser"})
    well = examined(env={"TENUTO_APPS": "codex"})[1]

    assert (code, checks["settings"]["status"], well["settings"]["status"]) == (1, "error", "ok")
    assert "'curser' is not one of open-webui, librechat, codex" in checks["settings"]["message"]
    assert "TENUTO_APPS" in checks["settings"]["advice"]


def test_a_log_whose_file_is_gone_is_an_error_and_stays(tmp_path: Path) -> None:
    """A running server may be writing into it."""
    Path("data/tenuto.db").unlink()
    Path("data/tenuto.db-wal").write_bytes(b"turns")

    code, checks, _ = examined()

    assert (code, checks["store"]["status"]) == (1, "error")
    assert "put the file back, or remove" in checks["store"]["advice"]
    assert [each.name for each in Path("data").iterdir()] == ["tenuto.db-wal"]


@pytest.mark.parametrize(
    ("statements", "says", "advice"),
    [
        (f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 99", "x.db has format 99", "upgrade tenuto"),
        ("CREATE TABLE theirs (x)", "x.db is the database of another program", "at another file"),
    ],
)
def test_the_advice_on_a_file_of_others_fits_its_cause(statements: str, says: str, advice: str) -> None:
    with closing(sqlite3.connect("x.db")) as db:
        db.executescript(statements)

    found = examined("--store", "sqlite:///x.db")[1]["store"]

    assert (found["status"], says in found["message"], advice in found["advice"]) == ("error", True, True)


def test_the_advice_on_a_damaged_file_is_a_backup() -> None:
    file = Path("data/tenuto.db")
    file.write_bytes(file.read_bytes()[:4096] + b"x" * (file.stat().st_size - 4096))

    checks = examined()[1]

    assert {checks[name]["advice"] for name in ("store", "integrity")} == {"stop the server and restore a backup"}


def test_the_engines_database_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()

    checks = examined(env={"TENUTO_AGENTS": str(tmp_path / "agents")})[1]

    assert "has no database yet" in checks["tasks"]["message"]
    assert not Path("data/tenuto-tasks.db").exists()


def test_the_round_trip_leaves_nothing_behind(tmp_path: Path) -> None:
    examined()

    with sqlite3.connect(tmp_path / "data" / "tenuto.db") as db:
        assert db.execute("SELECT count(*) FROM record WHERE kind = 'session'").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM entry").fetchone() == (0,)
    db.close()


def test_a_wrong_setting_is_red_and_named() -> None:
    code, checks, _ = examined(env={"TENUTO_STALE_AFTER": "60d"})

    assert code == 1
    assert checks["settings"]["status"] == "error"
    assert "TENUTO_STALE_AFTER" in checks["settings"]["advice"]


def test_a_server_open_to_the_world_without_a_key_is_red_until_there_is_one() -> None:
    env = {"TENUTO_HOST": "0.0.0.0"}
    code, checks, _ = examined(env=env)
    assert (code, checks["auth"]["status"]) == (1, "error")
    assert "tenuto keys create" in checks["auth"]["advice"]

    CliRunner().invoke(program, ["keys", "create", "--tenant", "acme"])

    code, checks, _ = examined(env=env)
    assert (code, checks["auth"]["message"]) == (0, "API keys (1 usable, 0 revoked)")


async def test_sessions_from_the_future_mean_a_wrong_clock() -> None:
    async with tenuto.open(clock=lambda: utc_now() + timedelta(days=1)) as app:
        await app.finish(await app.begin(app.scope(), "Hello from tomorrow"), "Hello.")

    code, checks, _ = await asyncio.to_thread(examined)

    assert (code, checks["clock"]["status"]) == (1, "error")
    assert "NTP" in checks["clock"]["advice"]


def test_less_safety_and_sessions_in_memory_are_notes() -> None:
    _, checks, _ = examined(env={"TENUTO_SQLITE_SYNCHRONOUS": "normal"})
    code, in_memory, _ = examined("--store", "memory://")

    assert checks["durability"]["status"] == "warning"
    assert (code, in_memory["sessions"]["status"]) == (0, "warning")


def test_the_lines_say_what_to_do() -> None:
    result = CliRunner().invoke(program, ["doctor"], env={"TENUTO_HOST": "0.0.0.0"})

    assert result.exit_code == 1
    assert "error    auth" in result.stdout
    assert "-> make a key with: tenuto keys create" in result.stdout
    assert "Something is wrong" in result.stdout


def test_settings_are_shown_on_request_after_the_checks() -> None:
    brief, whole = (CliRunner().invoke(program, ["doctor", *args]).stdout for args in ([], ["--settings"]))

    assert "breaker_failures" not in brief
    assert whole.index("No errors, 1 warning.") < whole.index("breaker_failures")
    assert "500  (preset platform; " in whole


def test_a_model_address_that_takes_no_connection_is_red() -> None:
    env = {"TENUTO_MODEL": "openai:gpt-5", "TENUTO_MODEL_BASE_URL": "http://ann:hunter2@127.0.0.1:1/v1"}

    code, checks, _ = examined(env=env)

    assert (code, checks["model"]["status"]) == (1, "error")
    assert checks["model"]["message"].endswith(": 127.0.0.1:1 cannot be reached (Connection refused)")
    assert "hunter2" not in str(checks)


@pytest.mark.parametrize(
    ("setting", "chain"),
    [
        ("TENUTO_MODEL", "ollama:llama3"),
        ("TENUTO_MODEL", "anthropic:claude-haiku-5-5, ollama:llama3"),
        ("TENUTO_SUMMARIZER_MODEL", "ollama:small"),
    ],
)
def test_the_own_address_of_a_local_provider_is_tried(setting: str, chain: str) -> None:
    env = {setting: chain, "OLLAMA_BASE_URL": "http://ann:hunter2@127.0.0.1:1/v1", "ANTHROPIC_API_KEY": "x"}

    code, checks, _ = examined(env=env)

    assert (code, checks["model"]["status"]) == (1, "error")
    assert checks["model"]["message"] == f"{chain}: 127.0.0.1:1 cannot be reached (Connection refused)"
    assert checks["model"]["advice"] == "start the server there, or set OLLAMA_BASE_URL to its address"


def test_address_and_key_of_the_settings_are_for_the_small_model_where_the_main_one_is_offline() -> None:
    small = {"TENUTO_SUMMARIZER_MODEL": "openai:small", "TENUTO_MODEL_API_KEY": "sk-1"}
    with start_model_server() as provider:
        provider.answers(words("Ready."))
        _, checks, _ = examined(env={**small, "TENUTO_MODEL_BASE_URL": provider.url})
        assert provider.keys == ["Bearer sk-1"]

    _, elsewhere, _ = examined(env={**small, "TENUTO_MODEL": "ollama:main"})

    assert checks["model"]["status"] == "ok"
    assert ", with a key answers in " in checks["model"]["message"]
    assert elsewhere["chat"]["message"] == "summarizer_model: openai:small needs OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("reply", "says", "advice"),
    [
        (refusal(401, "Wrong key: sk-1", "invalid_api_key"), "refused: {} refuses our key", "is not sent to"),
        (refusal(404, "No such model", "model_not_found"), "refused: {} is not known", "the model's name"),
        (refusal(429, "No money left", "insufficient_quota"), "over a limit: {} has no quota left", "quota"),
        (words(finish="content_filter"), "declined by a content filter: {} declined", "filter"),
        (SILENCE, "too slow: {} took too long", "TENUTO_MODEL_TIMEOUT"),
    ],
)
@pytest.mark.parametrize("chain", ["openai:local", "openai:local,offline"])
def test_the_doctor_asks_the_model_and_names_the_reason(
    monkeypatch: pytest.MonkeyPatch, chain: str, reply: Reply, says: str, advice: str
) -> None:
    monkeypatch.setattr("tenuto.cli.chat_checks._MODEL_TIMEOUT", timedelta(seconds=0.5 if reply is SILENCE else 60))
    with start_model_server() as provider:
        provider.answers(reply)
        code, checks, _ = examined(env={"TENUTO_MODEL": chain, "TENUTO_MODEL_BASE_URL": provider.url})

    found = checks["model"]
    assert (code, found["status"], checks["store"]["status"]) == (1, "error", "ok")
    named = "the model openai:local, offline" if reply is SILENCE and "," in chain else "the model openai:local"
    assert found["message"].startswith(says.format(named)), found
    assert advice in found["advice"]


def test_an_address_that_takes_no_connection_is_blamed_on_its_models_alone(tmp_path: Path) -> None:
    for name, model in (("cut", "ollama:a"), ("off", "ollama:b, offline"), ("well", "openai:other")):
        (tmp_path / f"{name}.toml").write_text(f"system.en = 'x'\nmodel = '{model}'")
    with start_model_server() as provider:
        provider.answers(words("Ready."))
        env = {
            "TENUTO_MODEL": "openai:main",
            "TENUTO_MODEL_BASE_URL": provider.url,
            "OLLAMA_BASE_URL": "http://127.0.0.1:1/v1",
            "TENUTO_ASSISTANTS": str(tmp_path),
        }
        result = CliRunner().invoke(program, ["doctor"], env=env)

    lines = [line.split(maxsplit=2) for line in result.stdout.splitlines() if " model  " in line]
    assert [(status, says.split(" at ")[0]) for status, _, says in lines] == [
        ("error", "ollama:a and ollama:b, offline: 127.0.0.1:1 cannot be reached (Connection refused)"),
        ("ok", "openai:main"),
        ("ok", "openai:other"),
    ]


def test_the_time_of_a_model_is_none_of_the_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """To load a provider's library took the rest of the store's time on a slow machine, and the store was blamed."""
    limits: list[bool] = []
    running: list[object] = []

    @asynccontextmanager
    async def limited(seconds: float) -> AsyncIterator[None]:
        async with asyncio.timeout(seconds) as limit:
            running.append(limit)
            yield
            running.remove(limit)

    async def talking(app: Tenuto) -> list[Finding]:
        limits.append(bool(running))
        return []

    monkeypatch.setattr("tenuto.cli.doctor.asyncio", SimpleNamespace(run=asyncio.run, timeout=limited))
    monkeypatch.setattr("tenuto.cli.chat_checks.talking", talking)

    assert examined()[1]["store"]["status"] == "ok"
    assert limits == [False]


def test_the_first_model_of_a_chain_that_fails_is_a_warning_and_all_is_not_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with start_model_server() as provider:
        provider.answers(refusal(401, "Wrong key: sk-1", "invalid_api_key"), words("Ready."))
        env = {"TENUTO_MODEL": "openai:first,openai:second", "TENUTO_MODEL_BASE_URL": provider.url}
        result = CliRunner().invoke(program, ["doctor"], env=env)

    lines = [line.split(maxsplit=2) for line in result.stdout.splitlines() if "  model  " in line]
    assert [line[0] for line in lines] == ["warning", "ok"]
    assert not [record for record in caplog.records if record.name.startswith("tenuto.llm")], "the finding says it"
    assert "the provider says: Wrong key: sk-1" in result.stdout
    assert result.stdout.endswith("\nNo errors, 2 warnings.\n")
    assert result.exit_code == 0


def test_what_is_not_installed_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # None stands for a module that cannot be found.
    for module in ("dbos", "tenuto.llm.pydantic_ai", "tenuto.stores.redis"):
        monkeypatch.setitem(sys.modules, module, None)

    tasks, plans = (examined()[1][name] for name in ("tasks", "assistants"))
    model = examined(env={"TENUTO_MODEL": "openai:gpt-5", "OPENAI_API_KEY": "x"})[1]["chat"]
    driver = examined("--store", "redis://127.0.0.1:1/0")[1]["store"]

    assert (tasks["status"], tasks["advice"]) == ("warning", install_line("tasks"))
    assert (plans["status"], plans["message"]) == (
        "warning",
        "general (default), goods, npc, legal (not installed), plain",
    )
    assert plans["advice"] == f"legal: {install_line('tasks')}"
    assert (model["status"], model["advice"]) == ("error", install_line("models"))
    assert (driver["status"], driver["advice"]) == ("error", install_line("redis"))


@pytest.mark.parametrize(
    ("origin", "line", "folder"),
    [
        (None, "pip install 'tenuto[tasks]'", None),
        ('{"url": "https://host/t.whl", "archive_info": {}}', "pip install 'tenuto[tasks]'", None),
        ('{"url": "file:///home/ann/my%20clone", "dir_info": {}}', "pip install '.[tasks]'", "/home/ann/my clone"),
        ('{"url": "file:///t", "dir_info": {"editable": true}}', "pip install -e '.[tasks]'", "/t"),
    ],
)
def test_an_extra_comes_from_where_tenuto_was_installed_from(
    monkeypatch: pytest.MonkeyPatch, origin: str | None, line: str, folder: str | None
) -> None:
    monkeypatch.setattr(
        "importlib.metadata.distribution", lambda _: SimpleNamespace(version="1", read_text=lambda _: origin)
    )
    extras._origin.cache_clear()
    try:
        assert (extras.install_line("tasks"), extras.install_folder()) == (line, folder)
        own_folder = f"'{folder}[tasks]'" if folder else "'tenuto[tasks]'"
        assert extras.with_folder(f"Run {line}").endswith(own_folder)
        (own, *_) = versions()
        assert own.message.endswith(f"installed from {folder}") == (folder is not None)
    finally:
        extras._origin.cache_clear()


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/v1", "http://[::1", "http://", "ftp://host/v1"])
def test_what_is_no_address_is_an_invalid_setting(url: str) -> None:
    code, checks, _ = examined(env={"TENUTO_MODEL": "ollama:llama3", "TENUTO_MODEL_BASE_URL": url})
    _, others, _ = examined(env={"TENUTO_MODEL": "ollama:llama3", "OLLAMA_BASE_URL": url})

    assert (code, checks["chat"]["status"], others["chat"]["status"]) == (1, "error", "error")
    assert checks["chat"]["message"].startswith("model_base_url: ")


def test_the_doctor_tells_who_answers_and_how() -> None:
    _, checks, _ = examined()
    with start_model_server() as provider:
        provider.answers(words("Ready."))
        port = urlsplit(provider.url).port
        _, chosen, _ = examined(
            env={
                "TENUTO_MODEL": "openai:gpt-5",
                "TENUTO_MODEL_BASE_URL": f"http://ann:hunter2@127.0.0.1:{port}/v1",
                "TENUTO_ASSISTANT": "goods",
                "TENUTO_MODEL_CONTEXT_WINDOWS": "openai:gpt-5=4096",
            }
        )

    assert checks["model"]["message"].startswith("offline: needs no key")
    assert checks["assistants"]["message"] == "general (default), goods, npc, legal, plain"
    assert checks["prompt"]["message"] == "8,192 tokens: 7,168 for the input, 1,024 for the reply"
    asked = f"openai:gpt-5 at http://ann:***@127.0.0.1:{port}/v1, without a key answers in "
    assert (chosen["model"]["status"], chosen["model"]["message"].startswith(asked)) == ("ok", True)
    assert chosen["assistants"]["message"] == "general, goods (default), npc, legal, plain"
    assert chosen["prompt"]["message"] == "4,096 tokens: 3,072 for the input, 1,024 for the reply"


def test_the_doctor_tells_what_compares_talk(tmp_path: Path) -> None:
    (tmp_path / "weather.toml").write_text("system.en = 'You know the sky.'\nrelevance = 0.15")
    gated = {"TENUTO_ASSISTANTS": str(tmp_path)}

    said = [
        examined(env=env)[1]["embedder"]["message"]
        for env in ({}, gated, {**gated, "TENUTO_EMBEDDER": "none"}, {"TENUTO_EMBEDDER": "ollama:nomic-embed-text"})
    ]

    assert said == [
        "local compares texts by meaning (used by memories)",
        "local compares texts by meaning (used by memories, weather)",
        "none, texts are compared by words; turned off by a setting (used by memories, weather)",
        "ollama:nomic-embed-text compares texts by meaning (used by memories)",
    ]


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"TENUTO_EMBEDDER": "nobody:ada"}, "embedder: no provider is called 'nobody'"),
        ({"TENUTO_MODEL": "openai:gpt-5", "OPENAI_API_KEY": ""}, "openai:gpt-5 needs OPENAI_API_KEY"),
        ({"TENUTO_MODEL": "nobody:gpt-5"}, "nobody"),
        ({"TENUTO_ASSISTANT": "butler"}, "there is no 'butler'"),
        ({"TENUTO_PROMPT_TOKENS": "90", "TENUTO_REPLY_TOKENS": "60"}, "(assistant general)"),
    ],
)
def test_what_would_stop_the_chat_is_red(env: dict[str, str], says: str) -> None:
    code, checks, _ = examined(env=env)

    assert (code, checks["chat"]["status"]) == (1, "error")
    assert says in checks["chat"]["message"]
    assert checks["store"]["status"] == "ok"


def test_a_folder_of_assistants_that_is_not_there_is_wrong() -> None:
    code, checks, _ = examined(env={"TENUTO_ASSISTANTS": "nowhere"})

    assert (code, "chat" in checks, checks["assistants"]["status"]) == (1, False, "error")
    assert checks["assistants"]["message"].startswith("there is no folder nowhere")


def test_each_assistants_file_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("persona = [")
    (tmp_path / "graph.py").write_text("import no_such_framework.graph\n")

    code, checks, _ = examined(env={"TENUTO_ASSISTANTS": str(tmp_path)})
    printed = CliRunner().invoke(program, ["doctor"], env={"TENUTO_ASSISTANTS": str(tmp_path)}).stdout

    assert (code, checks["assistants"]["status"]) == (0, "ok")
    assert checks["assistants"]["message"].endswith(", plain, bad (missing), graph (missing)")
    assert checks["assistant"]["status"] == "warning"
    assert "bad is missing: bad.toml: is not TOML" in printed
    assert "graph is missing: graph.py (No module named 'no_such_framework' at line 1)" in printed
    assert checks["assistant"]["advice"].startswith("install the package that has the module no_such_framework")


def test_a_tool_that_the_offline_model_never_calls_is_named(tmp_path: Path) -> None:
    (tmp_path / "poet.toml").write_text("system.en = 'x'\ntools = ['rhyme']")
    (tmp_path / "poet.py").write_text("def rhyme(word: str) -> str:\n    'A rhyme.'\n    return word\n")

    checks = examined(env={"TENUTO_ASSISTANTS": str(tmp_path)})[1]

    assert checks["tools"]["status"] == "warning"
    assert checks["tools"]["message"].endswith("(poet: rhyme)")
    assert "tools" not in examined()[1]


def test_a_refused_key_is_advised_on_by_what_was_sent() -> None:
    chain = "openai:local"
    for more, advice in (({}, "set TENUTO_MODEL_API_KEY"), ({"TENUTO_MODEL_API_KEY": "x"}, "check the key")):
        with start_model_server() as provider:
            provider.answers(refusal(401, "Wrong key: sk-1", "invalid_api_key"))
            env = {"TENUTO_MODEL": chain, "TENUTO_MODEL_BASE_URL": provider.url, "OPENAI_API_KEY": "sk-1", **more}
            assert examined(env=env)[1]["model"]["advice"].startswith(advice)


def test_a_task_webhook_that_cannot_be_reached_is_told() -> None:
    sound = {"TENUTO_TASK_WEBHOOK": "http://ann:hunter2@127.0.0.1:1/x", "TENUTO_TASK_WEBHOOK_SECRET": "s" * 16}

    found = examined(env=sound)[1]["task webhook"]

    assert (found["status"], found["message"]) == ("warning", "127.0.0.1:1 cannot be reached (Connection refused)")


def test_an_app_whose_assistant_is_missing_is_told() -> None:
    """The server would not start."""
    sound = {f"TENUTO_LARK_{name}": "x" for name in ("APP_ID", "APP_SECRET", "ENCRYPT_KEY")}

    told = [examined(env={**sound, **more})[1]["channels"] for more in ({}, {"TENUTO_LARK_ASSISTANT": "absent"})]

    assert [one["status"] for one in told] == ["ok", "error"]
    assert "there is no such assistant" in told[1]["message"]


def test_a_budget_that_is_too_small_is_named_once() -> None:
    _, checks, _ = examined(env={"TENUTO_PROMPT_TOKENS": "90", "TENUTO_REPLY_TOKENS": "60"})

    assert checks["chat"]["message"].startswith("budget: 90 tokens")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///tenuto.db", "sqlite:///tenuto.db"),
        ("sqlite:////var/lib/tenuto.db", "sqlite:////var/lib/tenuto.db"),
        ("memory://", "memory://"),
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:hunter2@h:1/0", "redis://:***@h:1/0"),
        ("redis+cluster://u:hunter2@a:1,b:2", "redis+cluster://u:***@a:1,b:2"),
        ("postgresql://u:hunter2@h/db?sslmode=require", "postgresql://u:***@h/db?sslmode=require"),
        ("postgresql://h/db?password=hunter2", "postgresql://h/db?password=***"),
        ("redis://[bad:hunter2@h", "redis://(hidden)"),
    ],
)
def test_a_stores_password_is_never_shown(url: str, shown: str) -> None:
    assert mask_password(url) == shown


def test_a_write_ahead_log_that_cannot_be_emptied_is_a_warning_with_advice(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    sqlite3.connect(file).close()
    file.touch(0o600)
    file.chmod(0o600)
    log = tmp_path / "t.db-wal"
    sizes = {}
    for size in (64 << 20, 1 << 30):
        log.touch()
        os.truncate(log, size)
        sizes[size] = check_sqlite_file(file, Settings())[0]

    assert [finding.status for finding in sizes.values()] == ["ok", "warning"]
    assert "Close what reads the file" in (sizes[1 << 30].advice or "")


def shown_values(**given: Any) -> dict[str, str]:
    return {name: setting.value for name, setting in effective(Settings(**given)).items()}


def test_secrets_are_hidden_and_presets_filled_in() -> None:
    shown = shown_values(
        preset="goods_qa",
        jwt_secret="s" * 40,
        model_base_url="http://a:sss@h/v1",
        tasks_database="postgresql://a:sss@h/db",
        task_webhook="https://a:sss@h/x",
        task_webhook_secret="sss" * 8,
        retention=timedelta(0),
    )

    assert shown["jwt_secret"] == "(hidden)"
    assert (shown["max_turns"], shown["max_sessions"], shown["retention"]) == ("10", "1000", "off")
    assert shown["model_base_url"] == "http://a:***@h/v1"
    assert "sss" not in str(shown)


@pytest.mark.requirement("E6")
def test_how_long_tasks_and_notes_live_is_shown_though_nobody_set_it() -> None:
    """`off` would mean that they are kept for ever."""
    shown, set_shorter = shown_values(), shown_values(task_retention=timedelta(minutes=30))

    assert (shown["task_retention"], shown["agent_retention"]) == ("1d", "1h")
    assert (set_shorter["task_retention"], set_shorter["agent_retention"]) == ("30m", "30m")


@pytest.mark.requirement("T20")
def test_a_value_in_force_is_shown_with_its_source_and_never_as_off() -> None:
    """What the general assistant runs under, by preset or as it was set, and which assistants differ."""
    for settings in (Settings(), Settings(preset="multi_agent", keep_verbatim=7)):
        shown, context = effective(settings), settings.policies().context
        for name in ("compress_at", "compress_over", "keep_verbatim", "summary_tokens", "summary_characters"):
            value = getattr(context, name)
            assert shown[name].value == ("off" if value is None else str(value)), name
    shown = effective(Settings(preset="multi_agent", keep_verbatim=7))
    assert shown["keep_verbatim"].source.startswith("set; goods: 20")
    assert shown["compress_at"].source.startswith("preset multi_agent; goods: off; npc: off")
    assert (shown["lease"].source, shown["preset"].source) == ("default", "set")
    assert shown["tasks_database"] == ("next to the store", "default")
    assert (shown["memories_without_user"].value, shown["summarizer_model"]) == ("false", ("offline", "as model"))


def test_durations_read_as_settings_write_them() -> None:
    spans = [timedelta(days=30), timedelta(hours=36), timedelta(seconds=90), timedelta(milliseconds=250), timedelta(0)]

    assert [duration(span) for span in spans] == ["30d", "36h", "90s", "0.25s", "off"]
