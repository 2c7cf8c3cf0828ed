"""Talking at the terminal: at a keyboard, through the real `tenuto` process, and through pipes."""

from __future__ import annotations

import asyncio
import shlex
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest

from tenuto.app import Tenuto
from tenuto.chat import Chat
from tenuto.cli.app_thread import BackgroundApp
from tenuto.cli.conversation import ChatOptions, TerminalChat
from tenuto.model import Scope
from tests.journeys.terminal import CTRL_C, CTRL_D, CTRL_P, ENTER, Shell
from tests.servers.openai_server import ModelServer, Reply, refusal, stalling, start_model_server, words

EVIL = "\x1b]0;owned\x07\x9b31m\u202e"


@pytest.fixture
def provider(shell: Shell) -> Iterator[ModelServer]:
    """A model's server that the desk's `tenuto` talks to."""
    with start_model_server() as server:
        shell.env |= {
            "TENUTO_MODEL": "openai:served",
            "TENUTO_MODEL_BASE_URL": f"{server.url}/v1",
            "TENUTO_SUMMARIZER_MODEL": "offline",
        }
        yield server


# With a keyboard


def test_a_talk_with_its_commands(shell: Shell) -> None:
    with shell.sit_down() as screen:
        screen.see("General answers, with the offline model: no key, no network")
        screen.say("/why", "invalid: nothing has been said yet")
        screen.say("My name is Ann.", "Noted.")
        screen.say("What is my name?", "You said: “My name is Ann.”")
        screen.say("/why", "in the prompt, 1,024 kept for the reply (counted exactly)")
        assert "\x1b[44m" in screen.see("KIND ")
        assert "#1" in screen.see("frame")
        screen.say("/retry", "You said: “My name is Ann.”")
        screen.say("/trace", "assemble")
        screen.say("/title Who I Am", "Who I Am\r\n")
        screen.say("/sessions", "Who I Am")
        screen.say("/dance", "invalid: unknown command")
        screen.say("/help", "/retry", "> ")
        screen.press(CTRL_D)
        screen.see("(continue later with: tenuto chat --session ")
        assert screen.end() == 0

    assert shell.texts() == ["My name is Ann.", "Noted.", "What is my name?", "You said: “My name is Ann.”"]


def test_a_code_links_the_talks_user_and_news_of_it_are_told_once(shell: Shell) -> None:
    shell.ask("chat", "Hello", "--user", "ann")
    with shell.sit_down("--user", "ann") as screen:
        screen.say("/unlink", "identity_not_found: ")
        screen.say("/link")
        code = screen.see(" links you with the user who enters it").split()[-1]
        screen.say("/link 0", "link_code_refused: ", "> ")
        with shell.sit_down("--user", "bob") as other:
            other.say(f"/link {code}", "Linked: you are ann, bob.")
            other.say("/unlink", "Parted from the others.", "> ")
            other.press(CTRL_D)
            assert other.end() == 0
        screen.press(CTRL_D)
        assert screen.end() == 0
    for news in ("this user was unlinked", "General answers"):
        with shell.sit_down("--user", "ann") as screen:
            screen.see(news)
            screen.see("> ")
            screen.press(CTRL_D)
            assert screen.end() == 0

    assert "this user was" not in screen.seen


def test_one_switches_between_sessions(shell: Shell) -> None:
    """By the number in the list as it was shown, or by id; each goes on with its own assistant and character."""
    visit = shell.ask("chat", "--assistant", "npc", "--persona", "ancestor_yan", "严氏家训有哪些？")["session_id"]
    shell.ask("chat", "My name is Ann.")
    with shell.sit_down("--assistant", "goods") as screen:
        screen.say("/open", "invalid: name a session")
        screen.say("/open 99", "session_not_found: ")
        screen.say("/sessions")
        assert "NO" in screen.see("严氏家训")
        screen.say("cheap phones?", "¥")
        screen.say("/open 1", "General answers", "My name is Ann", "Noted.")
        screen.say("What is my name?", "You said: “My name is Ann.”")
        screen.say(f"/open {visit}", "The ancestor of the Yans answers", "[E-RULE-10]")
        screen.say("第一条是什么意思？", "[E-MEAN-01]")
        screen.say("/retry", "[E-MEAN-01]")
        screen.say("/quit")
        assert screen.end() == 0

    assert shell.ask("sessions", "show", visit)["session"]["metadata"]["persona"] == "ancestor_yan"


def test_a_session_that_was_reset_goes_on_with_its_assistant(shell: Shell) -> None:
    shop = shell.ask("chat", "--assistant", "goods", "cheap phones?", "--user", "ann")["session_id"]
    with shell.sit_down("--session", shop, "--user", "ann") as screen:
        screen.say("/reset", "(cleared; the session is empty)")
        screen.say("cheap laptops", "¥")
        screen.say("/quit")
        assert screen.end() == 0

    assert shell.ask("sessions", "show", shop, "--user", "ann")["session"]["metadata"]["assistant"] == "goods"


@pytest.mark.requirement("D20")
def test_new_and_reset_begin_again(shell: Shell) -> None:
    with shell.sit_down("--user", "ann") as screen:
        screen.say("My name is Ann.", "Noted")
        screen.say("/reset", "(cleared; the session is empty)")
        screen.say("/new")
        screen.say("//home is a folder")
        screen.say("/quit", "--user ann)")
        assert screen.end() == 0

    first, second = sorted(shell.ask("sessions", "list", "--user", "ann")["sessions"], key=lambda each: each["id"])
    assert first["message_count"] == 0
    shown = shell.ask("sessions", "show", second["id"], "--user", "ann")["messages"]
    assert shown[0]["text"] == "/home is a folder"


def test_a_new_session_is_answered_by_whom_the_one_before_was(shell: Shell) -> None:
    session = shell.ask("chat", "--assistant", "goods", "cheap phones?")["session_id"]

    with shell.sit_down("--session", session) as screen:
        screen.say("/new")
        screen.say("cheap laptops?")
        screen.say("/quit", "(continue later with: ")
        assert screen.end() == 0

    traces = shell.ask("traces", "list")["traces"]
    assert [trace["assistant"] for trace in traces] == ["goods", "goods"]
    assert len({trace["session_id"] for trace in traces}) == 2
    shown = shell.run("traces", "show", session, "--text").stdout
    assert shown.index("\nquestion\ncheap phones?") < shown.index("\nframe\n(not stored)")


def test_the_command_to_go_on_with_can_be_typed_as_it_stands(shell: Shell) -> None:
    with shell.sit_down("--store", "sqlite:///my talks.db", "--user", "ann") as screen:
        screen.say("My name is Ann.", "Noted")
        screen.say("/quit", "(continue later with: tenuto ")
        command = shlex.split(screen.see(")\x1b"))
        assert screen.end() == 0

    assert "You said: “My name is Ann.”" in shell.run(*command, "What is my name?").stdout


@pytest.mark.requirement("T18")
def test_the_command_to_go_on_with_shows_no_password(shell: Shell) -> None:
    manner = ChatOptions(persona="ancestor_yan", store="redis://me:hush@example.org/0")
    scope = Scope(tenant="local", user="ann")

    command = TerminalChat(cast(BackgroundApp, SimpleNamespace(app=None)), scope, manner, "s 1")._again()

    assert "hush" not in command
    assert shlex.split(command)[2:] == [
        "--session", "s 1", "--persona", "ancestor_yan", "--user", "ann", "--store", "redis://me:***@example.org/0",
    ]  # fmt: skip


def test_a_talk_goes_on_where_it_was_and_earlier_words_can_be_recalled(shell: Shell) -> None:
    shell.env["TENUTO_EMBEDDER"] = "local"
    session = shell.ask("chat", "My name is Ann.")["session_id"]

    with shell.sit_down("--session", session) as screen:
        screen.see("2 messages")
        screen.see("> My name is Ann.")
        screen.see("Noted.")
        screen.say("What is my name?", "You said: “My name is Ann.”", "> ")
        screen.press(CTRL_P + CTRL_P + ENTER)
        screen.see("Noted.")
        screen.say("/quit")
        assert screen.end() == 0

    assert shell.texts()[-2:] == ["My name is Ann.", "Noted."]


def test_words_come_as_they_are_said_and_ctrl_c_keeps_the_question(shell: Shell, provider: ModelServer) -> None:
    provider.answers(stalling("Once ", "upon "), words("A short ", "tale."))

    with shell.sit_down() as screen:
        screen.see("answers, with openai:served.")
        screen.say("Tell me a tale", "Once upon ")
        screen.press(CTRL_C)
        screen.see("(stopped; your message is kept, and /retry answers it)")
        screen.say("/retry", "A short tale.", "> ")
        screen.press("half a thought")
        screen.see("half a thought")
        screen.interrupt()
        assert screen.leave() == 0

    assert shell.texts() == ["Tell me a tale", "A short tale."]
    assert [trace["error"] for trace in shell.ask("traces", "list")["traces"]] == [None, "cancelled"]


def test_ctrl_c_in_the_moment_before_the_wait_begins_is_noticed() -> None:
    """A signal that another thread handles interrupts no wait of the main one, as one that comes just before it."""
    opened: Future[BackgroundApp] = Future()
    ended: list[str] = []

    async def stay() -> None:
        background = BackgroundApp(cast(Tenuto, None), cast(Chat, None))
        opened.set_result(background)
        await background.wait_closed()

    async def work() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        try:
            await asyncio.sleep(20)
            ended.append("on its own")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    thread = threading.Thread(target=lambda: asyncio.run(stay()))
    thread.start()
    background = opened.result()
    with pytest.raises(KeyboardInterrupt):
        background.run(work)
    background._loop.call_soon_threadsafe(background._leaving.set)
    thread.join()

    assert ended == ["cancelled"]


def test_a_model_that_fails_ends_no_talk(shell: Shell, provider: ModelServer) -> None:
    provider.answers(refusal(400, "no"), words("Now then."))

    with shell.sit_down() as screen:
        screen.say("Hello", "request_refused: the model openai:served refused the request")
        screen.say("/retry", "Now then.")
        screen.say("/quit")
        assert screen.end() == 0


@pytest.mark.requirement("T18")
def test_a_models_words_steer_no_terminal(shell: Shell, provider: ModelServer) -> None:
    provider.answers(words("Look: ", EVIL[:3], EVIL[3:], " there."))

    with shell.sit_down() as screen:
        screen.say("Hello", "Look: \\x1b]0;owned\\x07\\x9b31m\\u202e there.")
        screen.say("/quit")
        assert screen.end() == 0

    once = shell.run("chat", "Hello")
    assert not set(once.stdout) & {"\x1b", "\x07", "\x9b", "\u202e"}


# Through pipes


def test_one_question_is_answered_and_the_process_ends(shell: Shell) -> None:
    given = shell.run_process("chat", "My name is Ann.")
    piped = shell.run_process("chat", words="我叫小林。\n".encode())

    assert (given.returncode, given.stdout, given.stderr) == (0, "Noted.\n", "")
    assert piped.returncode == 0
    assert piped.stdout == "记下了。\n"


def test_json_tells_the_whole_reply(shell: Shell) -> None:
    first = shell.ask("chat", "--assistant", "goods", "cheap phones?")
    second = shell.ask("chat", "--session", first["session_id"], "the best value among them")

    assert (first["assistant"], first["offline"], first["created"]) == ("goods", True, True)
    assert second["assistant"] == "goods"
    assert second["data"]["goods"][0]["id"] in [good["id"] for good in first["data"]["goods"]]
    assert second["context"]["total"] <= second["context"]["prompt_limit"]


@pytest.mark.requirement("C6", "C10")
def test_a_character_is_asked_by_its_id(shell: Shell) -> None:
    asked = ("chat", "--assistant", "npc", "--persona", "ancestor_yan", "--session", "visit")

    first = shell.run(*asked, "严氏家训有哪些？")
    second = shell.run(*asked, "--no-stream", "第一条是什么意思？")

    assert "[E-RULE-01]" in first.stdout
    assert "[E-MEAN-01]" in second.stdout
    nobody = shell.run("chat", "--assistant", "npc", "--persona", "nobody", "Hi")
    assert (nobody.returncode, nobody.stderr.startswith("assistant_not_found: ")) == (1, True)


def test_a_title_by_the_model_is_there_when_the_process_ends(shell: Shell, provider: ModelServer) -> None:
    """What follows the turn is waited for."""
    del shell.env["TENUTO_SUMMARIZER_MODEL"]
    provider.answers(words("Start at the lake."), words("Lake Morning Walk"))

    shell.run_process("chat", "Where do I start in Hangzhou tomorrow?")

    assert [session["title"] for session in shell.ask("sessions", "list")["sessions"]] == ["Lake Morning Walk"]


NOBODY = "there is no such assistant; available: general, goods, npc, legal, plain; TENUTO_ASSISTANTS, the folder of"


@pytest.mark.parametrize(
    ("args", "piped", "says"),
    [
        (("--session", "nowhere", "Hi"), b"", "session_not_found: "),
        (("--assistant", "nobody", "Hi"), b"", f"assistant_not_found: {NOBODY}"),
        (("--model", "openai:gpt-5", "Hi"), b"", "invalid_setting: model: openai:gpt-5 needs OPENAI_API_KEY"),
        (("--store", "mysql://x", "Hi"), b"", "invalid_setting: store: "),
        ((), b"", "invalid: the message is empty"),
        ((), b"  \n", "invalid: the message is empty"),
        ((), b"\xff\xfe", "invalid: standard input is not UTF-8 text"),
        ((), b"a" * 1_100_000, "too_large: "),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_ends_with_one_and_a_sentence(
    shell: Shell, args: tuple[str, ...], piped: bytes, says: str
) -> None:
    done = shell.run("chat", *args, words=piped)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (refusal(400, "no"), "request_refused: the model openai:served refused the request (400)"),
        (
            refusal(401, "Incorrect key sk-***\x1b[2J", "invalid_api_key"),
            "model_key_refused: the model openai:served refuses our key or its permissions (401); "
            "the provider says: Incorrect key sk-***\\x1b[2J",
        ),
    ],
    ids=["refused", "key"],
)
def test_a_model_that_fails_ends_one_question_with_its_cause_alone(
    shell: Shell, provider: ModelServer, failure: Reply, cause: str
) -> None:
    provider.answers(failure)

    done = shell.run("chat", "Hello")

    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{cause}\n")
    assert shell.texts() == ["Hello"]


def test_an_assistants_own_model_that_is_away_is_named_with_its_address(shell: Shell, provider: ModelServer) -> None:
    folder = shell.folder / "assistants"
    folder.mkdir()
    (folder / "own.toml").write_text("system.en = 'You help.'\nmodel = 'ollama:own'")
    shell.env |= {"TENUTO_ASSISTANTS": "assistants", "OLLAMA_BASE_URL": "http://127.0.0.1:1/v1"}

    done = shell.run("chat", "--assistant", "own", "Hello")

    cause = "model_failed: the model ollama:own does not answer: 127.0.0.1:1 cannot be reached (Connection refused)"
    assert (done.returncode, done.stderr) == (1, f"{cause}\n")
    assert "model_failed: unreachable" in shell.run("traces", "list").stdout


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_answer_of_the_fallback_says_why_the_model_failed(
    shell: Shell, provider: ModelServer, options: tuple[str, ...]
) -> None:
    provider.answers(refusal(429, "slow down", "rate_limit_exceeded"))

    done = shell.run("chat", "--model", "openai:served,offline", *options, "Hello")

    assert done.returncode == 0
    assert done.stderr == (
        "(degraded: answered by the fallback model: "
        "the model openai:served is asked more often than its provider allows (429))\n"
    )


def test_ctrl_c_ends_one_question_and_keeps_it(shell: Shell, provider: ModelServer) -> None:
    provider.answers(stalling("Once upon"))

    with shell.start("chat", "A tale") as process:
        assert process.stdout is not None
        assert process.stdout.read(9) == b"Once upon"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)

    assert (process.returncode, out, err) == (130, b"\n", b"")
    assert shell.texts() == ["A tale"]


# Traces


def test_traces_are_listed_and_shown(shell: Shell) -> None:
    reply = shell.ask("chat", "--assistant", "goods", "--user", "ann", "cheap phones?")
    session, trace = reply["session_id"], reply["trace_id"]

    listed = shell.run("traces", "list").stdout.splitlines()
    shown = shell.run("traces", "show", session)

    assert listed[1].split()[:5] == [session, "1", "goods", "offline", "answered"]
    assert listed[1].endswith("cheap phones?")
    for part in ("search_goods", "█", "KIND", "Request\ncheap phones?"):
        assert part in shown.stdout
    assert shell.run("traces", "show", trace).stdout == shown.stdout
    assert shell.run("traces", "show", session, "--turn", "1").stdout == shown.stdout
    assert shell.ask("traces", "show", trace)["context"] == reply["context"]
    assert shell.ask("traces", "list", "--session", session)["traces"][0]["trace_id"] == trace
    for stranger in (("--user", "bob"), ("--tenant", "other"), ("--turn", "2")):
        hidden = shell.run("traces", "show", session, *stranger)
        assert (hidden.returncode, hidden.stderr) == (1, "trace_not_found: trace not found\n")
    assert shell.run("traces", "list", "--tenant", "other").stdout == "No traces.\n"


def test_a_broken_file_of_an_assistant_ends_its_own_chat_alone(shell: Shell) -> None:
    folder = shell.folder / "assistants"
    folder.mkdir()
    (folder / "own.py").write_text("x = 1\nimport no_such_graph\n")
    (folder / "good.toml").write_text("system.en = 'You help.'")
    shell.env |= {"TENUTO_ASSISTANTS": "assistants"}

    answered = [shell.run("chat", "--assistant", name, "Hello").returncode for name in ("good", "goods")]
    before = shell.ask("sessions", "list")["sessions"]
    done = shell.run("chat", "--assistant", "own", "Hello")

    cause = "own.py (No module named 'no_such_graph' at line 2) needs a package that is not installed; install the "
    assert answered == [0, 0]
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"assistant_missing: assistant own cannot be loaded: {cause}")
    assert shell.ask("sessions", "list")["sessions"] == before


RESPONDS = """
from tenuto.assistants import Assistant

async def respond(turn):
    import no_such_graph
    yield None

def assistant():
    return Assistant(name="resp", respond=respond)
"""
FAILING_TOOL = """
from tenuto.assistants.function_tools import offline

@offline(plan=lambda turn: {"city": "Ulm"}, render=lambda found, turn: found)
def weather(city: str) -> str:
    \"\"\"The weather.\"\"\"
    return undefined_name
"""


def test_what_ones_own_code_raises_is_named_with_its_line_and_its_trace(shell: Shell) -> None:
    folder = shell.folder / "assistants"
    folder.mkdir()
    (folder / "resp.py").write_text(RESPONDS)
    (folder / "sky.py").write_text(FAILING_TOOL)
    (folder / "sky.toml").write_text('system.en = "x"\ntools = ["weather"]')
    shell.env |= {"TENUTO_ASSISTANTS": "assistants"}

    failed = shell.run("chat", "--assistant", "resp", "Hello")
    answered = shell.run("chat", "--assistant", "sky", "What is the weather?")
    listed = shell.run("traces", "list").stdout

    assert (failed.returncode, failed.stdout) == (1, "")
    raised, trace, code = failed.stderr.splitlines()
    assert raised.startswith("resp raised ModuleNotFoundError: No module named 'no_such_graph' (resp.py:5 in respond")
    assert trace.startswith("(trace: tenuto traces show ")
    assert code == "assistant_failed: the assistant resp failed; its operator finds the cause in the trace"
    assert "assistant_failed" in listed
    assert answered.returncode == 0
    assert "weather raised NameError: name 'undefined_name' is not defined (sky.py:7 in weather" in answered.stderr
    assert "(trace: tenuto traces show " in answered.stderr
    assert "again in a moment" not in answered.stdout
    shown = shell.run("traces", "show", trace.removeprefix("(trace: tenuto traces show ").rstrip(")")).stdout
    assert "No model was called: the turn ended before it." in shown
