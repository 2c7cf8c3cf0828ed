"""Apps for the terminal: codex, Claude Code, opencode and pi, as their versions of November 2026 speak."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from tests.apps.chat_app import ChatApp
from tests.apps.lines import Answer, Kind, Line
from tests.apps.wires import Completions, Messages, Responses, Wire

ENVIRONMENT: Final = "<environment_context>\n  <cwd>/home/ann/shop</cwd>\n  <shell>bash</shell>\n</environment_context>"
ABORTED: Final = "<turn_aborted>\nThe user interrupted the previous turn on purpose.\n</turn_aborted>"
REMINDER: Final = "<system-reminder>\nToday's date is 2026-11-19.\n</system-reminder>\n\n"
INTERRUPTED: Final = "[Request interrupted by user]\n"
READ: Final = 'Called the Read tool with the following input: {{"filePath":"/home/ann/shop/{}"}}'
FILE: Final = (
    "<path>/home/ann/shop/{}</path>\n<type>file</type>\n<content>\n1: {}\n\n(End of file - total 1 lines)\n</content>"
)
SHOWN: Final = "Attached media from tool result:"
COMPACTED_BEFORE: Final = (
    "This session is being continued from a previous conversation. The summary below covers it.\n\n"
)


class Codex(ChatApp):
    """codex 0.169: responses that are never stored by their own word, with instructions and its surroundings as items.

    A stopped answer is not sent again; a note of the app stands in its place.
    """

    name = "codex"
    has_edit: ClassVar[bool] = True
    has_compaction: ClassVar[bool] = True
    tools = ("exec_command", "view_image")
    wire: ClassVar[Wire] = Responses()
    window = 0

    def ids(self) -> dict[str, str]:
        metadata = {**self._metadata(), "request_kind": "turn"}
        return {**self._names(), "x-codex-turn-metadata": json.dumps(metadata)}

    def task_ids(self) -> dict[str, str]:
        metadata = {**self._metadata(), "request_kind": "compaction", "compaction": {"trigger": "manual"}}
        return {**self._names(), "x-codex-turn-metadata": json.dumps(metadata)}

    def _names(self) -> dict[str, str]:
        window = f"{self.chat}:{self.window}"
        names = {"session-id": self.chat, "thread-id": self.chat, "x-client-request-id": self.chat}
        return {**names, "x-codex-window-id": window, "originator": "codex_exec", "user-agent": "codex_exec/0.169.0"}

    def _metadata(self) -> dict[str, Any]:
        ids = {"installation_id": self.user, "session_id": self.chat, "thread_id": self.chat}
        return {**ids, "window_id": f"{self.chat}:{self.window}", "window_number": self.window, "thread_source": "user"}

    def as_question(self, text: str, *, picture: bool = False) -> Line:
        shown = ('<image name=[Image #1] path="red.png">', "</image>") if picture else ()
        identity = f"msg_{self.chat}_{len(self.sent)}_{len(self.lines)}"
        return Line(kind=Kind.QUESTION, text=text, id=identity, before=shown, picture=picture)

    def keep_stopped(self, answer: Answer) -> list[Line]:
        return [Line(kind=Kind.QUESTION, text=ABORTED, id=f"msg_{self.chat}_aborted", hidden=True)]

    def body(self, lines: Sequence[Line]) -> dict[str, Any]:
        tools = [*self.wire.tools(self.tools), _NAMESPACE]
        return {**self._body(lines), "tools": tools, "tool_choice": "auto", "parallel_tool_calls": True}

    def _body(self, lines: Sequence[Line]) -> dict[str, Any]:
        developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": self.system}]}
        around = Line(kind=Kind.QUESTION, text=ENVIRONMENT, id=f"msg_{self.chat}_env", hidden=True)
        return {
            "model": self.model,
            "stream": True,
            "input": [developer, *self.wire.history([around, *lines])],
            "reasoning": {"summary": "auto"},
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": self.chat,
            "client_metadata": {"session_id": self.chat, "thread_id": self.chat},
        }

    def task_body(self, text: str) -> dict[str, Any]:
        return self._body([*self.lines, Line(kind=Kind.QUESTION, text=text)])

    async def compact(self) -> None:
        """The questions stay, their answers give way to a summary."""
        summary = await self.ask_for_itself("You are performing a CONTEXT CHECKPOINT COMPACTION.")
        self.window += 1
        questions = [line for line in self.lines if line.kind is Kind.QUESTION and not line.hidden]
        told = f"Another language model started to solve this problem and produced a summary: {summary}"
        self.lines = [*questions, Line(kind=Kind.QUESTION, text=told, id=f"msg_{self.chat}_summary")]


_NAMESPACE: Final = {
    "type": "namespace",
    "name": "multi_agent_v1",
    "description": "Agents",
    "tools": [{"type": "function", "name": "spawn_agent", "strict": False, "parameters": {"type": "object"}}],
}


class ClaudeCode(ChatApp):
    """Claude Code 2.1: the first question has a reminder of the app's before it, and instructions stand in the talk.

    Rewinding cuts the talk under the same id. The title is asked for before the first question.
    """

    name = "claude-code"
    has_title: ClassVar[bool] = True
    has_regenerate: ClassVar[bool] = True
    has_edit: ClassVar[bool] = True
    has_compaction: ClassVar[bool] = True
    tools = ("Bash", "Read")
    wire: ClassVar[Wire] = Messages()

    def ids(self) -> dict[str, str]:
        beta = "claude-code-20250219,interleaved-thinking-2025-05-14,mid-conversation-system-2026-04-07"
        version = {"anthropic-version": "2023-06-01", "anthropic-beta": beta, "x-app": "cli"}
        agent = "claude-cli/2.1.197 (external, cli)"
        return {"x-claude-code-session-id": self.chat, "user-agent": agent, **version}

    def as_question(self, text: str, *, picture: bool = False) -> Line:
        interrupted = (INTERRUPTED,) if self.lines and self.lines[-1].id == "stopped" else ()
        return Line(kind=Kind.QUESTION, text=text, before=interrupted, picture=picture)

    def keep_stopped(self, answer: Answer) -> list[Line]:
        return [replace(line, id="stopped") for line in answer.lines]

    def body(self, lines: Sequence[Line]) -> dict[str, Any]:
        first, *later = lines
        messages = self.wire.history([replace(first, before=(REMINDER, *first.before)), *later])
        messages.insert(1, {"role": "system", "content": f"Skills for {len(lines)} lines of talk."})
        newest = next(message for message in reversed(messages) if message["role"] == "user")
        newest["content"][-1]["cache_control"] = {"type": "ephemeral"}
        for message in messages:
            # A question that is old is a text alone.
            content = message["content"]
            if message["role"] == "user" and message is not newest and [one["type"] for one in content] == ["text"]:
                message["content"] = content[0]["text"]
        return {**self._body(messages), "tools": self.wire.tools(self.tools), "thinking": {"type": "adaptive"}}

    def _body(self, messages: list[Any]) -> dict[str, Any]:
        ids = {"device_id": self.user, "account_uuid": "", "session_id": self.chat}
        billing = "x-anthropic-billing-header: cc_version=2.1.197"
        return {
            "model": self.model,
            "system": [{"type": "text", "text": billing}, {"type": "text", "text": self.system}],
            "messages": messages,
            "metadata": {"user_id": json.dumps(ids)},
            "max_tokens": 64000,
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "high"},
            "stream": True,
        }

    def task_body(self, text: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
        form = {"effort": "high", "format": {"type": "json_schema", "schema": schema}}
        body = self._body([{"role": "user", "content": [{"type": "text", "text": text}]}])
        return {**body, "tools": [], "thinking": {"type": "disabled"}, "output_config": form}

    async def title(self) -> str:
        first = next((line.text for line in self.lines), "Hello")
        return await self.ask_for_itself(
            f"<session>\n{first}\n</session>\n\nWrite the title in the language of the user."
        )

    async def compact(self) -> None:
        """The demand for a summary is a turn like others, but for its text."""
        self.tasks += 1
        asked = Line(kind=Kind.QUESTION, text="CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nSummarise.")
        answer = await self._heard(self.body([*self.lines, asked]))
        self.lines = [Line(kind=Kind.QUESTION, text=COMPACTED_BEFORE + answer.text)]


class OpenCode(ChatApp):
    """opencode 1.18: the title is asked for beside the first question, under the same id.

    Files stand in a question as the calls that read them; a picture that a tool has read is a message of the user.
    """

    name = "opencode"
    has_title: ClassVar[bool] = True
    has_regenerate: ClassVar[bool] = True
    has_edit: ClassVar[bool] = True
    has_compaction: ClassVar[bool] = True
    tools = ("bash", "read", "task")
    wire: ClassVar[Wire] = Completions()
    reads_pictures = False

    def ids(self) -> dict[str, str]:
        agent = "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14"
        return {"x-session-id": self.chat, "x-session-affinity": self.chat, "user-agent": agent}

    def as_question(self, text: str, *, picture: bool = False) -> Line:
        read = (READ.format("red.png"), "Image read successfully") if picture else ()
        return Line(kind=Kind.QUESTION, text=text, before=read, picture=picture)

    def as_output(self, call: Line) -> list[Line]:
        shown = Line(kind=Kind.QUESTION, text="", before=(SHOWN,), picture=True, hidden=True)
        return [*super().as_output(call), *([shown] if self.reads_pictures else [])]

    def _kept(self, line: Line) -> Line:
        # Arguments are written anew, without blanks.
        if line.kind is not Kind.CALL:
            return super()._kept(line)
        return replace(line, text=json.dumps(json.loads(line.text), separators=(",", ":")))

    def body(self, lines: Sequence[Line]) -> dict[str, Any]:
        body = self._body(self.system, self.wire.history(lines))
        return {**body, "reasoning_effort": "medium", "tools": self.wire.tools(self.tools), "tool_choice": "auto"}

    def _body(self, system: str, messages: list[Any]) -> dict[str, Any]:
        talk = [{"role": "system", "content": system}, *messages]
        options = {"stream": True, "stream_options": {"include_usage": True}}
        return {"model": self.model, "max_tokens": 8000, "messages": talk, **options}

    def task_body(self, text: str) -> dict[str, Any]:
        return self._body(text, [{"role": "user", "content": line.text} for line in self.lines[:1]])

    async def title(self) -> str:
        return await self.ask_for_itself("You are a title generator. You output ONLY a thread title. Nothing else.")

    async def compact(self) -> None:
        summary = await self.ask_for_itself("You are a context summarization agent.")
        asked = Line(kind=Kind.QUESTION, text="What did we do so far?")
        self.lines = [asked, Line(kind=Kind.ANSWER, text=summary)]


class Pi(ChatApp):
    """pi: responses that are named by a header and a key of the cache."""

    name = "pi"
    tools = ("bash", "read", "edit")
    wire: ClassVar[Wire] = Responses()

    def ids(self) -> dict[str, str]:
        return {"session_id": self.chat, "x-client-request-id": self.chat, "user-agent": "OpenAI/JS 6.26.0"}

    def body(self, lines: Sequence[Line]) -> dict[str, Any]:
        return {
            "model": self.model,
            "stream": True,
            "input": [{"role": "system", "content": self.system}, *self.wire.history(lines)],
            "prompt_cache_key": self.chat,
            "store": False,
            "max_output_tokens": 8000,
            "tools": self.wire.tools(self.tools),
        }
