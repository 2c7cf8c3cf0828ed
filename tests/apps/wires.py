"""The three APIs that apps speak: how a chat's lines stand in a request, and how an answer is read."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from tests.apps.lines import PICTURE, Answer, Kind, Line

DATA_URL = f"data:image/png;base64,{PICTURE}"
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}


class Wire(ABC):
    """One of the APIs."""

    path: str

    @abstractmethod
    def history(self, lines: Sequence[Line]) -> list[Any]:
        """The lines as messages or items."""

    @abstractmethod
    def question(self, line: Line) -> Any:
        """A question as a message."""

    @abstractmethod
    def tools(self, names: Sequence[str]) -> list[Any]:
        """Tools of these names."""

    @abstractmethod
    def hear(self, data: dict[str, Any], answer: Answer) -> None:
        """Add to the answer what an event of the stream brings."""

    @abstractmethod
    def read(self, body: dict[str, Any], answer: Answer) -> None:
        """Read an answer that came whole."""


def parts_of(line: Line, text: str, picture: Any, *, as_text: bool) -> Any:
    """The content of a question: a text alone, or parts."""
    if as_text and not line.before and not line.picture:
        return line.text
    pictures = [picture] if line.picture else []
    return [*({"type": text, "text": one} for one in (*line.before, line.text)), *pictures]


class Completions(Wire):
    """OpenAI's chat completions."""

    path = "/v1/chat/completions"

    def __init__(self, *, questions_as_text: bool = True) -> None:
        self.questions_as_text = questions_as_text

    def question(self, line: Line) -> Any:
        picture = {"type": "image_url", "image_url": {"url": DATA_URL}}
        return {"role": "user", "content": parts_of(line, "text", picture, as_text=self.questions_as_text)}

    def history(self, lines: Sequence[Line]) -> list[Any]:
        messages: list[Any] = []
        for line in lines:
            match line.kind:
                case Kind.QUESTION:
                    messages.append(self.question(line))
                case Kind.ANSWER:
                    messages.append({"role": "assistant", "content": line.text})
                case Kind.CALL:
                    function = {"name": line.tool, "arguments": line.text}
                    call = {"id": line.id, "type": "function", "function": function}
                    messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
                case Kind.OUTPUT:
                    messages.append({"role": "tool", "tool_call_id": line.id, "content": line.text})
        return messages

    def tools(self, names: Sequence[str]) -> list[Any]:
        return [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in names]

    def hear(self, data: dict[str, Any], answer: Answer) -> None:
        for choice in data.get("choices", ()):
            delta = choice["delta"]
            answer.text += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                function = call.get("function", {})
                if call.get("id"):
                    line = Line(
                        kind=Kind.CALL, text=function.get("arguments", ""), id=call["id"], tool=function["name"]
                    )
                    answer.calls.append(line)
                elif answer.calls:
                    last = answer.calls[-1]
                    text = last.text + function.get("arguments", "")
                    answer.calls[-1] = Line(kind=Kind.CALL, text=text, id=last.id, tool=last.tool)
            answer.whole = answer.whole or choice.get("finish_reason") is not None

    def read(self, body: dict[str, Any], answer: Answer) -> None:
        answer.text, answer.whole = body["choices"][0]["message"]["content"] or "", True


class Responses(Wire):
    """OpenAI's responses; `keeps_ids` of an app that sends the ids of items with them."""

    path = "/v1/responses"

    def __init__(self, *, keeps_ids: bool = True) -> None:
        self.keeps_ids = keeps_ids

    def question(self, line: Line) -> Any:
        picture = {"type": "input_image", "image_url": DATA_URL, "detail": "high"}
        content = parts_of(line, "input_text", picture, as_text=False)
        return {"type": "message", "role": "user", "content": content, **self._id(line)}

    def _id(self, line: Line) -> dict[str, str]:
        return {"id": line.id} if self.keeps_ids and line.id else {}

    def history(self, lines: Sequence[Line]) -> list[Any]:
        items: list[Any] = []
        for line in lines:
            match line.kind:
                case Kind.QUESTION:
                    items.append(self.question(line))
                case Kind.ANSWER:
                    content = [{"type": "output_text", "text": line.text, "annotations": []}]
                    item = {"type": "message", "role": "assistant", "status": "completed", "content": content}
                    items.append({**item, **self._id(line)})
                case Kind.CALL:
                    call = {"call_id": line.id, "name": line.tool, "arguments": line.text}
                    items.append({"type": "function_call", "status": "completed", **call})
                case Kind.OUTPUT:
                    items.append({"type": "function_call_output", "call_id": line.id, "output": line.text})
        return items

    def tools(self, names: Sequence[str]) -> list[Any]:
        return [{"type": "function", "name": name, "strict": False, "parameters": PARAMETERS} for name in names]

    def hear(self, data: dict[str, Any], answer: Answer) -> None:
        match data["type"]:
            case "response.output_text.delta":
                answer.text += data["delta"]
            case "response.output_item.done":
                self._item(data["item"], answer)
            case "response.completed":
                answer.whole = True

    def _item(self, item: dict[str, Any], answer: Answer) -> None:
        if item["type"] == "message":
            answer.id = item["id"]
        elif item["type"] == "function_call":
            line = Line(kind=Kind.CALL, text=item["arguments"], id=item["call_id"], tool=item["name"])
            answer.calls.append(line)

    def read(self, body: dict[str, Any], answer: Answer) -> None:
        for item in body["output"]:
            self._item(item, answer)
            if item["type"] == "message":
                answer.text += "".join(part["text"] for part in item["content"])
        answer.whole = True


class Messages(Wire):
    """Anthropic's messages."""

    path = "/v1/messages"

    def question(self, line: Line) -> Any:
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
        texts = [{"type": "text", "text": text} for text in (*line.before, line.text)]
        pictures = [{"type": "image", "source": source}] if line.picture else []
        return {"role": "user", "content": [*pictures, *texts]}

    def history(self, lines: Sequence[Line]) -> list[Any]:
        messages: list[Any] = []
        for is_model, run in groupby(lines, key=lambda line: line.kind in (Kind.ANSWER, Kind.CALL)):
            if is_model:
                messages.append({"role": "assistant", "content": [self._block(line) for line in run]})
                continue
            for is_question, same in groupby(run, key=lambda line: line.kind is Kind.QUESTION):
                if is_question:
                    messages += [self.question(line) for line in same]
                else:
                    messages.append({"role": "user", "content": [self._block(line) for line in same]})
        return messages

    def _block(self, line: Line) -> Any:
        match line.kind:
            case Kind.CALL:
                return {"type": "tool_use", "id": line.id, "name": line.tool, "input": json.loads(line.text or "{}")}
            case Kind.OUTPUT:
                return {"tool_use_id": line.id, "type": "tool_result", "content": line.text, "is_error": False}
            case _:
                return {"type": "text", "text": line.text}

    def tools(self, names: Sequence[str]) -> list[Any]:
        return [{"name": name, "description": name, "input_schema": PARAMETERS} for name in names]

    def hear(self, data: dict[str, Any], answer: Answer) -> None:
        match data["type"]:
            case "content_block_start" if data["content_block"]["type"] == "tool_use":
                block = data["content_block"]
                answer.calls.append(Line(kind=Kind.CALL, text="", id=block["id"], tool=block["name"]))
            case "content_block_delta" if data["delta"]["type"] == "text_delta":
                answer.text += data["delta"]["text"]
            case "content_block_delta" if data["delta"]["type"] == "input_json_delta":
                last = answer.calls[-1]
                text = last.text + data["delta"]["partial_json"]
                answer.calls[-1] = Line(kind=Kind.CALL, text=text, id=last.id, tool=last.tool)
            case "message_stop":
                answer.whole = True

    def read(self, body: dict[str, Any], answer: Answer) -> None:
        answer.text = "".join(block["text"] for block in body["content"] if block["type"] == "text")
        answer.whole = True
