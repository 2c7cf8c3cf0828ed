"""A model for chats of apps: it answers by what it is asked, so that requests may come in any order and at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Final

from tenuto.model.attachment import MediaInputs
from tenuto.model.generation import ModelDone, ModelEvent, ModelRequest, TextDelta, ToolCall, ToolCallRequested
from tenuto.model.message import Role
from tenuto.model.parameters import ModelFacts
from tenuto.ports import Tool

TITLE: Final = "Ann and her city"
STOPPED_WORDS: Final = ("One ", "two ", "three ", "four ")


class AppModel:
    """Answers the newest question, with a number that differs from one answer to the next.

    Of "use the tool" it calls the first tool; asked to count it says four words and waits until it is cancelled. Tasks
    of apps and of the server are told by their texts and get a title.
    """

    def __init__(self, *tasks: str) -> None:
        self.facts = ModelFacts(schemas=True, media=MediaInputs(content=frozenset({"image/png"})))
        self.tasks = tasks
        self.requests: list[ModelRequest] = []
        self.task_requests: list[ModelRequest] = []
        self.cancelled = 0

    @property
    def name(self) -> str:
        """What traces call it."""
        return "app-model"

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Answer."""
        newest = request.messages[-1]
        words = "".join(message.text for message in request.messages)
        if request.background or any(task in words for task in self.tasks):
            self.task_requests.append(request)
            yield TextDelta(text=TITLE if request.schema is None else json.dumps({"title": TITLE}))
            yield ModelDone(model=self.name)
            return
        self.requests.append(request)
        number = len(self.requests)
        questions = [message.text for message in request.messages if message.role is Role.USER and message.text]
        # A question that was stopped before its answer began stands before the next one in the same message.
        asked = questions[-1].splitlines()[-1]
        if newest.role is Role.TOOL or not newest.text:
            # A picture alone is what a tool has read.
            yield TextDelta(text=f"The tool is done ({number}). ")
        elif "use the tool" in asked:
            call = ToolCall(id=f"call_{number}", name=request.tools[0].name, arguments={"command": "date"})
            yield ToolCallRequested(call=call)
        elif "Count" in asked:
            try:
                for word in STOPPED_WORDS:
                    yield TextDelta(text=word)
                await asyncio.Event().wait()
            except (GeneratorExit, asyncio.CancelledError):
                self.cancelled += 1
                raise
        else:
            for piece in (f"Answer {number} ", "is this. "):
                yield TextDelta(text=piece)
        yield ModelDone(model=self.name)
