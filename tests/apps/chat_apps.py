"""Apps of a browser, a command for one question, and a home-made script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from tests.apps.chat_app import ChatApp
from tests.apps.lines import Kind, Line
from tests.apps.wires import Completions, Wire

ATTACHED: Final = '<attached_files>\n<file type="file" content_type="image/png" name="red.png"/>\n</attached_files>\n\n'
RETRIEVED: Final = (
    "### Task:\nRespond to the user query using the provided context, incorporating inline citations.\n\n"
    '### Output:\nProvide a clear response.\n\n<context>\n<source id="1" name="note.txt">{}\n</source>\n</context>\n\n'
)
RULES: Final = "# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this format."
EXAMPLES: Final = (
    Line(kind=Kind.QUESTION, text="Change get_factorial() to use math.factorial"),
    Line(kind=Kind.ANSWER, text="To make this change we need to modify `mathweb/flask/app.py`."),
    Line(kind=Kind.QUESTION, text="I switched to a new code base."),
    Line(kind=Kind.ANSWER, text="Ok."),
)


class OpenWebUI(ChatApp):
    """open-webui 0.12, which forwards the ids of chat and user when it is told to.

    Its tasks come under the id of the chat, the title before the first answer. A `document` that was attached is looked
    up anew for each question, and what was found stands before the newest one.
    """

    name = "open-webui"
    names_user: ClassVar[bool] = True
    has_title: ClassVar[bool] = True
    has_regenerate: ClassVar[bool] = True
    has_edit: ClassVar[bool] = True
    tools = ("get_current_timestamp", "search_web")
    wire: ClassVar[Wire] = Completions()
    document = ""

    def ids(self) -> dict[str, str]:
        user = {"x-openwebui-user-id": self.user, "x-openwebui-user-email": f"{self.user}@example.org"}
        agent = "Python/3.11 aiohttp/3.14.5"
        return {"x-openwebui-chat-id": self.chat, "x-openwebui-user-name": self.user, "user-agent": agent, **user}

    def as_question(self, text: str, *, picture: bool = False) -> Line:
        attached = (ATTACHED,) if picture else ()
        return Line(kind=Kind.QUESTION, text=text, before=attached, picture=picture)

    def as_kept(self, answer: str) -> str:
        return answer.strip()

    def body(self, lines: Sequence[Line]) -> dict[str, Any]:
        tools, messages = self.wire.tools(self.tools), self.wire.history(lines)
        if self.document:
            self._retrieve(messages)
        return {"stream": True, "model": self.model, "messages": messages, "tools": tools}

    def _retrieve(self, messages: list[Any]) -> None:
        """Write what was found in front of the question; after a call of a tool it is a message of its own."""
        found, newest = RETRIEVED.format(self.document), messages[-1]
        if newest["role"] == "user":
            messages[-1] = {**newest, "content": found + newest["content"]}
        else:
            messages.append({"role": "user", "content": found})

    def task_body(self, text: str) -> dict[str, Any]:
        return {"model": self.model, "messages": [{"role": "user", "content": text}], "stream": False}

    async def _task(self, demand: str) -> str:
        talk = "\n".join(f"{line.kind.upper()}: {line.text}" for line in self.lines)
        return await self.ask_for_itself(
            f"### Task:\n{demand}\n### Chat History:\n<chat_history>\n{talk}\n</chat_history>"
        )

    async def title(self) -> str:
        return await self._task("Generate a concise title summarizing the chat history.")

    async def follow_ups(self) -> str:
        """What it asks for below each answer."""
        return await self._task("Predict 3-5 useful messages this user might naturally send next.")

    async def tags(self) -> str:
        """What it asks for after the first answer."""
        return await self._task("Generate 1-3 broad tags categorizing the main themes of the chat history.")

    async def continue_answer(self) -> str:
        """Have the last answer go on: the app shows both as one."""
        before = self.lines[-1]
        said = await self._take_turn()
        self.lines[-2:] = [replace(before, text=before.text + said)]
        return said


class LibreChat(ChatApp):
    """LibreChat, with the headers that its documentation has for an endpoint of one's own."""

    name = "librechat"
    names_user: ClassVar[bool] = True
    has_regenerate: ClassVar[bool] = True
    has_edit: ClassVar[bool] = True
    tools = ()
    wire: ClassVar[Wire] = Completions()

    def ids(self) -> dict[str, str]:
        return {"x-librechat-conversation-id": self.chat, "x-librechat-user-id": self.user}

    def body(self, lines: Sequence[Line]) -> dict[str, Any]:
        messages = [{"role": "system", "content": self.system}, *self.wire.history(lines)]
        return {"model": self.model, "user": self.user, "stream": True, "messages": messages}


class Llm(ChatApp):
    """The command `llm`: nothing names a chat."""

    name = "llm"
    tools = ("llm_time",)
    wire: ClassVar[Wire] = Completions()

    def body(self, lines: Sequence[Line]) -> dict[str, Any]:
        body = {"model": self.model, "stream": True, "messages": self.wire.history(lines)}
        return {**body, "stream_options": {"include_usage": True}, "tools": self.wire.tools(self.tools)}


class Aider(ChatApp):
    """aider: examples that are the same in every chat stand before the talk, and rules behind its newest question."""

    name = "aider"
    tools = ()
    wire: ClassVar[Wire] = Completions()

    def as_kept(self, answer: str) -> str:
        return answer.strip()

    def body(self, lines: Sequence[Line]) -> dict[str, Any]:
        *older, newest = self.wire.history(lines)
        ruled = {**newest, "content": f"{newest['content']}\n\n{RULES}"}
        messages = [{"role": "system", "content": self.system}, *self.wire.history(EXAMPLES), *older, ruled]
        return {"model": self.model, "stream": True, "messages": messages}


class Script(ChatApp):
    """A home-made script that names its chat by our own header."""

    name = "script"
    has_regenerate: ClassVar[bool] = True
    has_edit: ClassVar[bool] = True
    wire: ClassVar[Wire] = Completions()

    def ids(self) -> dict[str, str]:
        return {"Tenuto-Session": self.chat}

    def body(self, lines: Sequence[Line]) -> dict[str, Any]:
        messages = [{"role": "system", "content": self.system}, *self.wire.history(lines)]
        return {"model": self.model, "stream": True, "messages": messages, "tools": self.wire.tools(self.tools)}
