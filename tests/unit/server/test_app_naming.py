"""What requests of apps say: one table of the wire shapes that apps have, and what is read in each."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final

import pytest
from starlette.datastructures import Headers

from tenuto.access import Caller, KeyRole
from tenuto.errors import Invalid, InvalidSetting
from tenuto.server.apps.naming import AppRequest, read_app_request
from tenuto.server.apps.presets import AppRules, presets
from tenuto.server.auth import AuthContext
from tenuto.settings import Settings
from tests.apps.chat_apps import RETRIEVED

APPS: Final = "open-webui,librechat,claude-code,codex,opencode,pi"
QUESTION: Final = {"messages": [{"role": "user", "content": "Where do I start?"}]}
TOOLS: Final = {"tools": [{"type": "function", "function": {"name": "read"}}]}
OPEN: Final = AuthContext(caller=None)


def codex(**turn: str) -> dict[str, str]:
    return {"session-id": "c1", "x-codex-turn-metadata": json.dumps({"installation_id": "box", **turn})}


def device(session: str) -> dict[str, Any]:
    return {"metadata": {"user_id": json.dumps({"device_id": "d", "account_uuid": "", "session_id": session})}}


def read(headers: dict[str, str], body: dict[str, Any], admission: AuthContext = OPEN, **given: Any) -> AppRequest:
    rules = AppRules.of(Settings(**{"apps": APPS, **given}))
    return read_app_request(Headers(headers), body, rules, admission)


CHAT: Final = {"X-OpenWebUI-Chat-Id": "c1", "X-OpenWebUI-User-Id": "ann"}
CLAUDE: Final = {"X-Claude-Code-Session-Id": "c1"}
SHAPES: Final[dict[str, tuple[dict[str, str], dict[str, Any], tuple[str, str, str | None, bool]]]] = {
    # Per wire shape: headers, body; app, task, user, and whether it names a session.
    "open-webui": (CHAT, QUESTION, ("open-webui", "", "ann", True)),
    "open-webui, temporary": ({"X-OpenWebUI-Chat-Id": "local:4"}, QUESTION, ("open-webui", "", None, False)),
    "open-webui, template": (
        {**CHAT, "X-OpenWebUI-Task": "title_generation"},
        QUESTION,
        ("open-webui", "title", "ann", True),
    ),
    "open-webui, template of a turn": (
        {**CHAT, "X-OpenWebUI-Task": "{{TASK}}"},
        QUESTION,
        ("open-webui", "", "ann", True),
    ),
    "open-webui, unknown task": ({**CHAT, "X-OpenWebUI-Task": "poem"}, QUESTION, ("open-webui", "other", "ann", True)),
    "open-webui, metadata": (
        CHAT,
        {**QUESTION, "metadata": {"task": "tags_generation"}},
        ("open-webui", "tags", "ann", True),
    ),
    "open-webui, text": (
        CHAT,
        {"messages": [{"role": "user", "content": "### Task:\nGenerate tags"}]},
        ("open-webui", "other", "ann", True),
    ),
    "open-webui, a question about a document": (
        CHAT,
        {"messages": [{"role": "user", "content": f"{RETRIEVED.format('A heron.')}Which bird?"}]},
        ("open-webui", "", "ann", True),
    ),
    "open-webui, a person's text": (
        CHAT,
        {"messages": [{"role": "user", "content": "### Task:\nWrite a poem"}], "stream": True},
        ("open-webui", "", "ann", True),
    ),
    "librechat": ({"X-LibreChat-Conversation-Id": "c1"}, {**QUESTION, "user": "ann"}, ("librechat", "", "ann", True)),
    "librechat, nothing filled in": (
        {"X-LibreChat-Conversation-Id": "{{LIBRECHAT_BODY_CONVERSATIONID}}", "X-LibreChat-User-Id": "ann"},
        QUESTION,
        ("librechat", "", "ann", False),
    ),
    "librechat, new": (
        {"X-Conversation-Id": "new", "X-LibreChat-User-Id": "ann"},
        QUESTION,
        ("librechat", "", "ann", False),
    ),
    "codex": (codex(request_kind="turn"), {"input": "Hi"}, ("codex", "", "box", True)),
    "codex, title": (codex(thread_source="thread_title"), {"input": "Hi"}, ("codex", "title", "box", True)),
    "codex, compaction": (codex(request_kind="compaction"), {"input": "Hi"}, ("codex", "compaction", "box", True)),
    "codex, subagent": (
        {**codex(request_kind="turn"), "x-openai-subagent": "collab_spawn"},
        {"input": "Hi"},
        ("codex", "subagent", "box", True),
    ),
    "codex, metadata that is no JSON": (
        {"x-codex-turn-metadata": "{", "thread-id": "c1"},
        {"input": "Hi"},
        ("codex", "", None, True),
    ),
    "claude-code": (CLAUDE, {**QUESTION, **TOOLS, **device("c1")}, ("claude-code", "", "d", True)),
    "claude-code, no header": (
        {"user-agent": "claude-cli/2.1"},
        {**QUESTION, **device("c1")},
        ("claude-code", "", "d", True),
    ),
    "claude-code, title": (
        CLAUDE,
        {**QUESTION, "tools": [], "output_config": {"format": {}}},
        ("claude-code", "title", None, True),
    ),
    "claude-code, formed turn": (
        CLAUDE,
        {**QUESTION, **TOOLS, "output_config": {"effort": "low"}},
        ("claude-code", "", None, True),
    ),
    "claude-code, subagent": (
        {**CLAUDE, "x-claude-code-agent-id": "a1"},
        {**QUESTION, **TOOLS},
        ("claude-code", "subagent", None, True),
    ),
    "claude-code, compaction behind a tool's output": (
        CLAUDE,
        {
            **TOOLS,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t", "content": "ok"},
                        {"type": "text", "text": "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."},
                    ],
                },
                {"role": "system", "content": "agents"},
            ],
        },
        ("claude-code", "compaction", None, True),
    ),
    "opencode": ({"x-session-id": "c1"}, {**QUESTION, **TOOLS, "prompt_cache_key": "c1"}, ("opencode", "", None, True)),
    "opencode, title": ({"x-session-id": "c1"}, QUESTION, ("opencode", "other", None, True)),
    "opencode, title by its text": (
        {"x-session-id": "c1"},
        {"messages": [{"role": "system", "content": "You are a title generator. Be short."}, *QUESTION["messages"]]},
        ("opencode", "title", None, True),
    ),
    "opencode, compaction": (
        {"x-session-id": "c1"},
        {**QUESTION, "instructions": "You are a context summarization agent."},
        ("opencode", "compaction", None, True),
    ),
    "opencode, subagent": (
        {"x-session-id": "c2", "x-parent-session-id": "c1"},
        {**QUESTION, **TOOLS},
        ("opencode", "subagent", None, True),
    ),
    "pi": ({"session_id": "c1"}, {"input": "Hi", "prompt_cache_key": "c1"}, ("pi", "", None, True)),
    "another client": ({"user-agent": "OpenAI/Python"}, {**QUESTION, "user": "ann"}, ("", "", None, False)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_request_says_its_app_task_user_and_session(shape: str) -> None:
    headers, body, expected = SHAPES[shape]

    asked = read(headers, body)

    assert (asked.app, asked.task, asked.scope.user, asked.session is not None) == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_read_where_no_app_is_set(shape: str) -> None:
    headers, body, _ = SHAPES[shape]

    asked = read(headers, body, apps=None)

    assert asked == AppRequest(scope=OPEN.scope())


def test_the_session_of_an_id_is_that_of_its_owner_and_its_app() -> None:
    def session(admission: AuthContext, **given: Any) -> str | None:
        return read({"X-Chat": "c1"}, QUESTION, admission, session_from="header:X-Chat", **given).session

    ann = AuthContext(caller=None, user="ann")
    owners = [ann, OPEN, AuthContext(caller=None, user="bob"), AuthContext(caller=None, user="ann", tenant="evil")]
    owners.append(AuthContext(caller=None, user="ann", site="shop"))
    owners.append(AuthContext(caller=None, user="ann", channel="lark", chat="c"))

    names = [session(owner) for owner in owners]
    in_app = read({**CHAT, "X-Chat": "c1"}, QUESTION, ann, session_from="header:X-Chat").session

    assert len({*names, in_app}) == len(owners) + 1
    assert session(ann) == names[0]
    assert str(in_app).startswith("open-webui-")


def test_sources_count_in_their_order() -> None:
    order = "header:X-Chat,metadata.chat,metadata.state#chat.id,prompt_cache_key,user"
    metadata = {"chat": "m", "state": '{"chat": {"id": "j"}}'}
    body = {"prompt_cache_key": "k", "user": "u", "metadata": metadata}

    sessions = []
    for name, left in (("X-Chat", "h"), ("", ""), ("chat", ""), ("state", ""), ("prompt_cache_key", "")):
        metadata.pop(name, None)
        body.pop(name, None)
        headers = {"X-Chat": left} if left else {}
        sessions.append(read(headers, body, session_from=order).session)
    only = {read({"X-Chat": value}, {}, session_from=order).session for value in ("h", "m", "j", "k", "u")}

    assert len(set(sessions)) == 5
    assert set(sessions) == only


def test_the_header_of_ours_goes_before_an_app_and_counts_as_absent_if_empty() -> None:
    asked = read({**CHAT, "Tenuto-Session": "mine"}, QUESTION)

    assert (asked.session, asked.explicit) == ("mine", True)
    assert read({**CHAT, "Tenuto-Session": ""}, QUESTION) == read(CHAT, QUESTION)
    assert read({"Tenuto-Session": ""}, QUESTION).session is None


@pytest.mark.parametrize(
    ("caller", "named", "user"),
    [
        (None, None, "ann"),
        (None, "bob", "bob"),
        (Caller(tenant="acme"), None, "ann"),
        (Caller(tenant="acme", user="eve"), None, "eve"),
        (Caller(tenant="acme", user="eve", role=KeyRole.ADMIN), None, "ann"),
        (Caller(tenant="acme", user="eve", role=KeyRole.ADMIN), "bob", "bob"),
    ],
)
def test_an_app_names_the_user_only_where_the_header_of_ours_may(
    caller: Caller | None, named: str | None, user: str
) -> None:
    asked = read(CHAT, QUESTION, AuthContext(caller=caller, user=named))

    assert asked.scope.user == user


def test_the_settings_name_the_user_before_the_preset() -> None:
    headers = {**CHAT, "X-OpenWebUI-User-Email": "ann@example.com"}

    assert read(headers, QUESTION, user_from="header:X-OpenWebUI-User-Email").scope.user == "ann@example.com"
    assert read({"X-Who": "ann"}, QUESTION, user_from="header:X-Who").scope.user == "ann"


@pytest.mark.parametrize(
    ("apps", "rule", "headers", "expected"),
    [
        (None, None, {"Tenuto-Session": "s"}, (False, False)),
        (None, "ignore", {"Tenuto-Session": "s"}, (True, True)),
        # Without a session there is nothing to store a turn in.
        (None, "ignore", {}, (False, False)),
        ("open-webui", None, CHAT, (False, False)),
        ("codex", None, codex(), (True, True)),
        ("codex", "obey", codex(), (False, False)),
        ("codex", None, codex(thread_source="thread_title"), (False, False)),
    ],
)
def test_store_false_is_obeyed_unless_the_operator_says_otherwise(
    apps: str | None, rule: str | None, headers: dict[str, str], expected: tuple[bool, bool]
) -> None:
    asked = read(headers, {"input": "Hi", "store": False}, apps=apps, store_false=rule)

    assert (asked.store, asked.store_overridden) == expected
    assert ("Tenuto-Store" in asked.headers) is asked.store_overridden


def test_a_history_is_looked_for_only_where_nothing_names_the_session() -> None:
    def by_history(headers: dict[str, str], body: dict[str, Any], kept: int = 1) -> bool:
        return read(headers, body, sessions_by_history=timedelta(days=kept)).by_history

    assert by_history({}, QUESTION)
    assert not by_history({}, QUESTION, kept=0)
    assert not by_history(CHAT, QUESTION)
    assert not by_history({"Tenuto-Session": "s"}, QUESTION)
    assert not by_history({"X-OpenWebUI-Chat-Id": "local:4"}, QUESTION)
    assert not by_history({}, {"input": "Hi", "previous_response_id": "resp_1"})
    assert not read({}, {**QUESTION, "store": False}, sessions_by_history=timedelta(days=1)).is_stored


def test_a_request_that_names_its_predecessor_brings_no_whole_history() -> None:
    assert read({}, {"input": "Hi"}).whole_history
    assert not read({}, {"input": "Hi", "previous_response_id": "resp_1"}).whole_history
    assert not read({}, {"input": "Hi", "conversation": "conv_1"}).whole_history


def test_kinds_of_tools_are_left_out_for_the_app_that_always_sends_them() -> None:
    tools: list[dict[str, Any]] = [{"type": "namespace", "name": "n"}, {"type": "function", "name": "f"}]

    asked = read(codex(), {"input": "Hi", "tools": tools})
    other = read({}, {"input": "Hi", "tools": tools})

    assert (asked.dropped_tools, asked.kept_tools(tools)) == (("namespace",), tools[1:])
    assert asked.headers == {"Tenuto-Dropped-Tools": "namespace"}
    assert (other.dropped_tools, other.kept_tools(tools)) == ((), tools)


def test_a_thread_of_codex_goes_before_the_session_that_it_shares_with_its_parent() -> None:
    parent = read({**codex(), "thread-id": "c1"}, {"input": "Hi", "prompt_cache_key": "c1"})
    child = read({**codex(), "thread-id": "c2"}, {"input": "Hi", "prompt_cache_key": "c1"})

    assert parent.session != child.session


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"apps": "codex,curser"}, "'curser' is not one of open-webui, librechat, codex, claude-code, opencode, pi"),
        ({"session_from": "headers:X-Chat"}, "'headers:X-Chat' is not one of header:<name>"),
        ({"user_from": "header:user-agent=x"}, "'header:user-agent=x' is not one of"),
    ],
)
def test_a_preset_or_a_source_that_does_not_exist_stops_the_start(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(given))) as refused:
        AppRules.of(Settings(**given))

    assert told in str(refused.value)


def test_what_becomes_of_store_false_is_obey_or_ignore() -> None:
    with pytest.raises(InvalidSetting, match="store_false"):
        Settings(store_false="maybe")


def test_an_id_that_is_no_text_is_refused() -> None:
    with pytest.raises(Invalid, match="X-OpenWebUI-Chat-Id is not UTF-8"):
        read_app_request(Headers(raw=[(b"x-openwebui-chat-id", b"\xff")]), {}, AppRules.of(Settings(apps=APPS)), OPEN)


def test_presets_keep_nothing_that_clients_say_otherwise() -> None:
    """Only apps that send `store: false` with every request have it overridden."""
    assert {name for name, preset in presets().items() if preset.store_false == "ignore"} == {"codex", "opencode", "pi"}
