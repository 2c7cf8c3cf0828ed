"""The commands one by one, within this process."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

import tenuto
from tenuto.cli.running import for_one_person
from tenuto.model import Changes, Status
from tenuto.ports import Clock, utc_now
from tenuto.settings import Settings
from tests.journeys.cli_runs import run_command as run
from tests.journeys.cli_runs import run_json

pytestmark = pytest.mark.usefixtures("own_environment")


def seeded(
    count: int = 1, *, tenant: str = "local", site: str = "", user: str = "ann", clock: Clock = utc_now
) -> list[str]:
    """Sessions of one turn each, oldest first, titled `talk 0`, `talk 1` ..."""

    async def seed() -> list[str]:
        ids = []
        async with tenuto.open(clock=clock) as app:
            scope = app.scope(tenant=tenant, site=site, user=user)
            for number in range(count):
                turn = await app.begin(scope, f"Question {number}")
                await app.finish(turn, f"Answer {number}", tokens=7, cost_nanos=1_500)
                await app.sessions.patch(scope, turn.session.id, Changes(title=f"talk {number}"))
                ids.append(turn.session.id)
        return ids

    return asyncio.run(seed())


@pytest.fixture
def session_id() -> str:
    """Ann's only session."""
    return seeded()[0]


def archive(session_id: str) -> None:
    """Put a session away."""

    async def put() -> None:
        async with tenuto.open() as app:
            await app.sessions.patch(app.scope(), session_id, Changes(status=Status.ARCHIVED))

    asyncio.run(put())


# Listing


def test_listing_shows_the_latest_change_first() -> None:
    first, second = seeded(2)

    lines = run("sessions", "list").stdout.splitlines()

    assert lines[0].split() == ["ID", "USER", "TITLE", "STATUS", "MESSAGES", "CHANGED"]
    assert lines[1].split()[:6] == [second, "ann", "talk", "1", "active", "2"]
    assert lines[2].startswith(first)


@pytest.mark.requirement("E2")
def test_listing_narrows_by_user_status_and_title() -> None:
    """Status is a filter."""
    ann = seeded(3)
    bob = seeded(1, user="bob")
    archive(ann[0])

    def ids(*args: str) -> list[str]:
        return [session["id"] for session in run_json("sessions", "list", *args)["sessions"]]

    assert ids("--user", "bob") == bob
    assert ids("--status", "archived") == [ann[0]]
    assert ids("--search", "TALK 2") == [ann[2]]
    assert ids("--search", "nothing of the kind") == []


def test_listing_pages_by_limit_and_cursor_up_to_all() -> None:
    ids = seeded(5)

    page = run_json("sessions", "list", "--limit", "2")
    rest = run_json("sessions", "list", "--limit", "9", "--cursor", page["cursor"])

    assert [session["id"] for session in page["sessions"] + rest["sessions"]] == ids[::-1]
    assert rest["cursor"] is None
    assert len(run_json("sessions", "list", "--all")["sessions"]) == 5
    assert "there are more" in run("sessions", "list", "--limit", "2").stdout


def test_tenants_and_sites_do_not_see_each_other() -> None:
    seeded(1, tenant="acme", site="museum")

    assert run_json("sessions", "list")["sessions"] == []
    assert run_json("sessions", "list", "--tenant", "acme")["sessions"] == []
    assert len(run_json("sessions", "list", "--tenant", "acme", "--site", "museum")["sessions"]) == 1
    assert run("sessions", "list").stdout == "No sessions.\n"


# One session


def test_showing_pages_back_through_the_talk(session_id: str) -> None:
    newest = run_json("sessions", "show", session_id, "--limit", "1")
    before = run_json("sessions", "show", session_id, "--before", str(newest["messages"][0]["seq"]))

    assert [message["text"] for message in newest["messages"]] == ["Answer 0"]
    assert (newest["more_before"], newest["more_after"]) == (True, False)
    assert [message["text"] for message in before["messages"]] == ["Question 0"]
    assert "--before 2" in run("sessions", "show", session_id, "--limit", "1").stdout


def test_renaming_and_forking(session_id: str) -> None:
    renamed = run_json("sessions", "rename", session_id, "Museum tour")
    fork = run_json("sessions", "fork", session_id, "--at", "1", "--title", "Another way")

    assert (renamed["title"], renamed["user"]) == ("Museum tour", "ann")
    assert (fork["title"], fork["message_count"]) == ("Another way", 1)
    assert fork["forked_from"] == {"session_id": session_id, "seq": 1}


def test_resetting_keeps_the_session_and_its_totals(session_id: str) -> None:
    session = run_json("sessions", "reset", session_id)

    assert (session["message_count"], session["tokens"], session["title"]) == (0, 7, "talk 0")


@pytest.mark.requirement("A8")
def test_one_user_cannot_touch_anothers_session(session_id: str) -> None:
    """A foreign session looks like none at all."""

    for command in (("show",), ("reset",), ("export",), ("delete", "--yes")):
        result = run("sessions", *command, session_id, "--user", "bob")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("session_not_found: session not found")
    assert run_json("sessions", "show", session_id)["session"]["message_count"] == 2


# Removing


def test_deleting_removes_what_is_there_and_names_what_is_not() -> None:
    first, second = seeded(2)

    result = run("sessions", "delete", first, "nowhere", second, "--yes", "--json")

    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert answer["deleted"] == [first, second]
    assert answer["failed"] == [{"id": "nowhere", "code": "session_not_found", "error": "session not found"}]
    assert run_json("sessions", "list")["sessions"] == []


def test_deleting_without_yes_is_refused_where_nobody_can_be_asked(session_id: str) -> None:
    result = run("sessions", "delete", session_id, words="y\n")

    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert len(run_json("sessions", "list")["sessions"]) == 1


# Export and import


@pytest.mark.parametrize(("name", "start"), [("a.json", "{"), ("a.jsonl", "{"), ("a.md", "<!-- tenuto")])
def test_the_name_of_the_file_chooses_the_format(session_id: str, tmp_path: Path, name: str, start: str) -> None:
    saved = run_json("sessions", "export", session_id, "--output", name)

    file = tmp_path / name
    assert saved["bytes"] == file.stat().st_size
    assert file.read_text().startswith(start)
    assert file.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_export_that_fails_leaves_the_old_file(session_id: str, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("old")

    missing = run("sessions", "export", "nowhere", "--output", "old.json")
    no_folder = run("sessions", "export", session_id, "--output", "nowhere/a.json")

    assert missing.exit_code == no_folder.exit_code == 1
    assert (tmp_path / "old.json").read_text() == "old"
    assert no_folder.stderr == "invalid: cannot write nowhere/a.json: No such file or directory\n"


def test_importing_goes_on_after_a_file_that_is_no_export(session_id: str, tmp_path: Path) -> None:
    run("sessions", "export", session_id, "--output", "good.json")
    (tmp_path / "bad.json").write_text('{"format": "other"}')

    result = run("sessions", "import", "bad.json", "absent.json", "good.json", "--user", "bob", "--json")

    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [made["file"] for made in answer["imported"]] == ["good.json"]
    assert answer["imported"][0]["session"]["user"] == "bob"
    assert [(failure["file"], failure["code"]) for failure in answer["failed"]] == [
        ("bad.json", "invalid_json"),
        ("absent.json", "invalid"),
    ]


# Upkeep and keys


@pytest.mark.requirement("B16")
def test_an_import_s_counts_are_never_below_ours(tmp_path: Path) -> None:
    """A file may come from any source, and a prompt's budget is kept by what is stored."""
    messages = [{"role": "user", "text": "Where do we start today?", "tokens": tokens} for tokens in (0, 4, 9)]
    paper = {"format": "tenuto.session", "version": 1, "session": {}, "messages": messages}
    (tmp_path / "paper.json").write_text(json.dumps(paper))

    output = run_json("sessions", "import", "paper.json", "--user", "ann")["imported"][0]["session"]

    shown = run_json("sessions", "show", output["id"], "--user", "ann")
    assert [message["tokens"] for message in shown["messages"]] == [6, 6, 9]


def test_stats_count_what_the_scope_reaches() -> None:
    seeded(2)
    seeded(1, user="bob")

    assert run_json("stats") == {"sessions": 3, "messages": 6, "tokens": 21, "cost_usd": "0.0000045"}
    assert run_json("stats", "--user", "bob")["sessions"] == 1


@pytest.mark.requirement("A5")
def test_sweeping_removes_what_expired() -> None:
    """Retention ends, and a sweep takes the session away."""
    (kept,) = seeded()
    seeded(2, clock=lambda: utc_now() - timedelta(days=31))

    assert run_json("sweep") == {"swept": 2, "tasks": 0, "usage": 0}
    assert [session["id"] for session in run_json("sessions", "list")["sessions"]] == [kept]
    assert run("sweep").stdout == "0 expired sessions and 0 expired tasks removed.\n"


def chatted(*said: tuple[str, str]) -> None:
    """Questions of users to the offline model."""

    async def chat() -> None:
        async with tenuto.open() as app:
            for user, text in said:
                await app.ask(app.scope(user=user), text)

    asyncio.run(chat())


@pytest.mark.requirement("C14")
def test_usage_is_shown_by_day_and_assistant_with_bars() -> None:
    assert run("usage", "--store", "sqlite:///new.db").exit_code == 1
    seeded()
    [own] = run_json("usage", "--days", "1")["assistants"]
    chatted(("ann", "Where is my order?"), ("bob", "What about mine?"))

    lines = run("usage").stdout.splitlines()
    output = run_json("usage", "--days", "2")

    assert lines[0].split() == ["DAY", "TURNS", "INPUT", "OUTPUT", "USD", "TOKENS"]
    assert lines[1].split()[1] == lines[2].split()[1] == "3"
    assert lines[1].endswith("█" * 24)
    assert lines[2].startswith("total")
    assert lines[5].split()[:2] == ["general", "2"]
    assert (output["total"]["turns"], output["assistants"][0]["assistant"]) == (3, "general")
    assert (own["assistant"], own["turns"], own["input_tokens"]) == ("own model", 1, 7)
    assert run_json("usage", "--site", "elsewhere")["days"] == []
    assert run("usage", "--site", "elsewhere", "--days", "1").stdout == f"No usage since {utc_now().date()}.\n"


@pytest.mark.requirement("C14")
def test_topics_are_shown_once_three_users_raised_them() -> None:
    chatted(("ann", "How do refunds work?"), ("bob", "Refunds for tickets"))
    few = run("topics").stdout
    chatted(("cai", "Are refunds slow?"))

    lines = run("topics").stdout.splitlines()

    assert few.splitlines()[0] == "No topic was raised by at least three users."
    assert lines[0].split() == ["TOPIC", "SESSIONS", "USERS"]
    assert lines[1].split() == ["refunds", "3", "3", "█" * 24]
    assert lines[3].startswith("3 sessions since ")
    assert [topic["name"] for topic in run_json("topics", "--days", "1", "--limit", "5")["topics"]] == ["refunds"]


@pytest.mark.parametrize("role", ["admin", "privacy.reveal"])
def test_a_key_comes_with_its_secret_once(role: str) -> None:
    output = run_json("keys", "create", "--tenant", "acme", "--user", "ann", "--role", role, "--name", "laptop")

    listed = run("keys", "list", "--json").stdout
    key = json.loads(listed)["keys"][0]
    assert output["secret"].startswith(f"tnt_{key['id']}_")
    assert output["secret"] not in listed
    assert (key["tenant"], key["user"], key["role"], key["name"]) == ("acme", "ann", role, "laptop")
    assert run_json("keys", "list", "--tenant", "other")["keys"] == []


# Serving


@pytest.mark.parametrize(
    ("args", "env", "port"),
    [
        ((), {}, 8765),
        ((), {"PORT": "9001"}, 9001),
        ((), {"PORT": ""}, 8765),
        ((), {"PORT": "9001", "TENUTO_PORT": "9002"}, 9002),
        (("--port", "9003"), {"PORT": "9001", "TENUTO_PORT": "9002"}, 9003),
    ],
)
def test_the_nearest_word_on_the_port_counts(
    monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], env: dict[str, str], port: int
) -> None:
    served: list[Settings] = []
    monkeypatch.setattr("tenuto.server.serve", served.append)
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    result = run("serve", *args)

    assert result.exit_code == 0, result.stderr
    assert [settings.port for settings in served] == [port]


# Refusals


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("sessions", "show", "nowhere"), "session_not_found: session not found"),
        (("sessions", "show", ""), "invalid: the session id is empty"),
        (("sessions", "show", "a\udcff"), "invalid_text: the session id holds a lone surrogate at position 1"),
        (("sessions", "show", "x" * 20_000), "invalid: the session id is longer than 16384 bytes"),
        (("sessions", "list", "--tenant", "~tenuto"), "invalid: a tenant id may not start with '~'"),
        (("sessions", "list", "--tenant", ""), "invalid: the tenant id is empty"),
        (("sessions", "list", "--cursor", "nonsense"), "invalid_cursor: "),
        (("sessions", "list", "--store", "mysql://x"), "invalid_setting: store: no backend is called 'mysql'"),
        (("sessions", "list", "--store", "sqlite:chat.db"), "invalid_setting: store: a SQLite store is written "),
        (("sessions", "list", "--store", "sqlite:///gone/x.db"), "invalid_setting: store: there is no file "),
        (("keys", "create", "--tenant", "~x"), "invalid: a tenant id may not start with '~'"),
        (("sessions", "rename", "nowhere", "two\nlines"), "invalid: the title has more than one line"),
    ],
)
def test_our_refusals_are_one_sentence_with_a_code(args: tuple[str, ...], says: str) -> None:
    seeded()

    result = run(*args)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(says)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ("sessions", "list", "--limit", "0"),
        ("sessions", "list", "--limit", "many"),
        ("sessions", "list", "--status", "lost"),
        ("sessions", "show"),
        ("sessions", "show", "x", "--before", "-1"),
        ("sessions", "export", "x", "--format", "pdf"),
        ("sessions", "export", "x", "--format", "markdown", "--json"),
        ("sessions", "fly"),
        ("keys", "create"),
        ("serve", "--port", "70000"),
        ("--nonsense",),
    ],
)
def test_misuse_ends_with_two(args: tuple[str, ...]) -> None:
    result = run(*args)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_RETENTON", "30d")

    result = run("sessions", "list")

    assert result.exit_code == 1
    assert "did you mean TENUTO_RETENTION?" in result.stderr


def test_looking_makes_no_file(tmp_path: Path) -> None:
    assert run("sessions", "list").exit_code == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["TENUTO_MODEL_BASE_URL", "OLLAMA_BASE_URL"])
def test_chat_names_a_dead_model_address_at_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TENUTO_MODEL", "ollama:llama3")
    monkeypatch.setenv(name, "http://ann:hunter2@127.0.0.1:1/v1")
    # Without the model's client, which takes seconds to load.
    monkeypatch.setattr("tenuto.cli.conversation.open_in_background", None)

    result = run("chat", "hello")

    assert result.exit_code == 1
    assert result.stderr == (
        "model_failed: the model ollama:llama3 does not answer: 127.0.0.1:1 cannot be reached (Connection refused)\n"
    )


def test_chat_goes_on_with_the_next_model_of_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_MODEL", "openai:gpt-5,offline")
    monkeypatch.setenv("TENUTO_MODEL_BASE_URL", "http://127.0.0.1:1/v1")

    assert run("chat", "hello").exit_code == 0


@pytest.mark.parametrize("command", [("sessions", "list"), ("serve", "--port", "0"), ("chat", "hello")])
def test_a_store_that_does_not_answer_is_named_without_its_password(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would outlast this test.
    monkeypatch.setattr("tenuto.server.run.configure_logging", lambda *_: None)
    result = run(*command, "--store", "redis://ann:hunter2@127.0.0.1:1/0")

    assert (result.exit_code, result.stderr) == (
        1,
        "unavailable: the session store at redis://ann:***@127.0.0.1:1/0 does not answer\n",
    )


@pytest.mark.parametrize(
    ("store", "setting", "remembers"),
    [
        ("sqlite:///chat.db", None, True),
        ("memory://", None, True),
        ("redis://127.0.0.1", None, None),
        ("postgresql://127.0.0.1/chat", None, None),
        ("postgresql://127.0.0.1/chat", True, True),
        ("sqlite:///chat.db", False, False),
    ],
)
def test_a_terminal_is_one_persons_only_on_a_store_of_its_own(
    store: str, setting: bool | None, remembers: bool | None
) -> None:
    settings = for_one_person(Settings(store=store, memories_without_user=setting))

    assert settings.memories_without_user is remembers
