"""An app that keeps its own list of what was said, and sends the whole of it with each request."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, ClassVar

import httpx

from tests.apps.lines import Answer, Kind, Line, Refused
from tests.apps.wires import Wire

# What the tools of an app answer.
OUTPUT = "The tool has run."


class ChatApp(ABC):
    """One chat of one app.

    `lines` is what the app shows and sends; `sent` are the lines of each turn's request, `tasks` counts requests that
    the app made for itself, `headers` are those of the newest response.
    """

    name: ClassVar[str]
    # The API that it speaks.
    wire: ClassVar[Wire]
    # What the app can do, for journeys to leave out the rest.
    has_title: ClassVar[bool] = False
    has_regenerate: ClassVar[bool] = False
    has_edit: ClassVar[bool] = False
    has_compaction: ClassVar[bool] = False
    # It tells the server whose chat it is.
    names_user: ClassVar[bool] = False
    tools: ClassVar[tuple[str, ...]] = ("shell",)
    system: ClassVar[str] = "You work inside an app."

    def __init__(
        self, base_url: str, chat: str, *, model: str = "plain", user: str = "ann", key: str | None = None
    ) -> None:
        self.base_url = base_url
        self.chat = chat
        self.model = model
        self.user = user
        self.key = key
        self.lines: list[Line] = []
        self.sent: list[tuple[Line, ...]] = []
        self.tasks = 0
        self.turns = 0
        self.headers: dict[str, str] = {}

    # What differs between apps.

    def ids(self) -> dict[str, str]:
        """The headers that every request of the chat has."""
        return {}

    @abstractmethod
    def body(self, lines: Sequence[Line]) -> dict[str, Any]:
        """The body of a turn."""

    def task_body(self, text: str) -> dict[str, Any]:
        """The body of a request of the app's own that says this; only apps that ask for titles have one."""
        raise TypeError("this app asks for nothing of its own")

    def task_ids(self) -> dict[str, str]:
        """The headers of such a request."""
        return self.ids()

    def as_question(self, text: str, *, picture: bool = False) -> Line:
        """A question as this app writes it."""
        return Line(kind=Kind.QUESTION, text=text, picture=picture)

    def as_kept(self, answer: str) -> str:
        """An answer as this app keeps it."""
        return answer

    def as_output(self, call: Line) -> list[Line]:
        """What this app sends of a tool's output."""
        return [Line(kind=Kind.OUTPUT, text=OUTPUT, id=call.id)]

    def keep_stopped(self, answer: Answer) -> list[Line]:
        """What the app keeps of an answer that was stopped: the words that it has received."""
        return answer.lines

    # What a person does.

    @property
    def shown(self) -> list[tuple[str, str]]:
        """The chat as it stands on the screen, and as the session has to have it."""
        return [(line.kind.value, line.text.strip()) for line in self.lines if not line.hidden]

    async def ask(self, text: str, *, picture: bool = False) -> str:
        """Ask, run the tools that are called, and show the answer."""
        self.lines.append(self.as_question(text, picture=picture))
        return await self._take_turn()

    async def regenerate(self) -> str:
        """Ask for another answer to the last question."""
        self._cut(self._questions()[-1] + 1)
        return await self._take_turn()

    async def edit(self, number: int, text: str) -> str:
        """Change a question; what follows it is dropped."""
        self._cut(self._questions()[number])
        return await self.ask(text)

    async def stop(self, text: str, *, after: str) -> str:
        """Ask, and stop the answer as soon as it says `after`."""
        self.lines.append(self.as_question(text))
        answer = Answer()
        async with aclosing(self._stream(self.ids(), self._turn_body(), answer)) as events:
            async for _ in events:
                if after in answer.text:
                    break
        self.lines += self.keep_stopped(answer)
        return answer.text

    async def title(self) -> str:
        """What the app asks for a title, if it does."""
        raise TypeError("this app asks for no title")

    async def compact(self) -> None:
        """Have the talk summarised, and go on from the summary, if the app does that."""
        raise TypeError("this app does not compact its talk")

    # How it is done.

    def _questions(self) -> list[int]:
        lines = enumerate(self.lines)
        return [place for place, line in lines if line.kind is Kind.QUESTION and not line.hidden]

    def _cut(self, place: int) -> None:
        del self.lines[place:]

    async def _take_turn(self) -> str:
        self.turns += 1
        while True:
            answer = await self._heard(self._turn_body())
            kept = [self._kept(line) for line in answer.lines]
            self.lines += kept
            if not answer.calls:
                return answer.text
            self.lines += [line for call in answer.calls for line in self.as_output(call)]

    async def _heard(self, body: dict[str, Any]) -> Answer:
        answer = Answer()
        async with aclosing(self._stream(self.ids(), body, answer)) as events:
            async for _ in events:
                pass
        assert answer.whole, "the stream broke off"
        return answer

    def _kept(self, line: Line) -> Line:
        if line.kind is not Kind.ANSWER:
            return line
        return Line(kind=Kind.ANSWER, text=self.as_kept(line.text), id=line.id)

    def _turn_body(self) -> dict[str, Any]:
        self.sent.append(tuple(self.lines))
        return self.body(self.lines)

    async def ask_for_itself(self, text: str) -> str:
        """A request of the app's own: its answer is no line of the chat."""
        self.tasks += 1
        body, answer = self.task_body(text), Answer()
        if body.get("stream"):
            async with aclosing(self._stream(self.task_ids(), body, answer)) as events:
                async for _ in events:
                    pass
        else:
            async with self._client() as http:
                response = await http.post(self.wire.path, headers=self.task_ids(), json=body)
            self._admit(response)
            self.wire.read(response.json(), answer)
        assert answer.whole
        return answer.text

    def _client(self) -> httpx.AsyncClient:
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.AsyncClient(base_url=self.base_url, headers=key, timeout=60)

    def _admit(self, response: httpx.Response) -> None:
        self.headers = dict(response.headers)
        if response.status_code != httpx.codes.OK:
            raise Refused(response.status_code, response.json())

    async def _stream(self, ids: dict[str, str], body: dict[str, Any], answer: Answer) -> AsyncGenerator[None]:
        async with self._client() as http, http.stream("POST", self.wire.path, headers=ids, json=body) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
            self._admit(response)
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    data = json.loads(line.removeprefix("data: "))
                    assert "error" not in data or data["error"] is None, data
                    self.wire.hear(data, answer)
                    yield
