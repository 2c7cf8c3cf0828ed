"""OpenAI's responses: what it refuses, and how it answers, whole and streamed.

Stricter than the service in one point: a call of a function that was made while reasoning comes back with its reasoning
also where the client has dropped the ids by which the service finds the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.providers.dialect import Prompt, content_of, sign
from tests.providers.media import read_data_url
from tests.providers.models import OpenAIModel
from tests.providers.openai_rules import (
    OpenAIDialect,
    check_file_id,
    check_function,
    check_image_url,
    check_metadata,
    openai_model,
    refuse_shape,
)
from tests.providers.prompts import canonical, tokens
from tests.providers.refusals import Refused, ShapeError, shaped, tagged
from tests.providers.responses_answers import render_response, response_events
from tests.providers.responses_shapes import (
    INPUTS,
    ITEMS,
    OUTPUTS,
    PREFIXES,
    TOOLS,
    FunctionCallItem,
    FunctionOutputItem,
    FunctionTool,
    InputFile,
    InputImage,
    ItemReference,
    MessageItem,
    ProviderItem,
    ProviderTool,
    ReasoningItem,
    ResponsesRequest,
)
from tests.providers.script import Answer, Tokens
from tests.providers.strict_schemas import openai_strict_fault

_CREATED: Final = 1_767_225_600


# Where parameters of chat completions are found here.
_MOVED: Final = {
    "messages": "input",
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}


class OpenAIResponses(OpenAIDialect):
    """The dialect of `POST /v1/responses`."""

    def read(self, raw: bytes, headers: Mapping[str, str]) -> Prompt:
        """Take a request, or refuse it as the service does."""
        content = content_of(raw, "Invalid body: failed to parse JSON value.")
        if "model" not in content:
            raise Refused("Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
        model = openai_model(str(content["model"]))
        if moved := next((name for name in _MOVED if name in content), None):
            text = (
                f"Unsupported parameter: '{moved}'. In the Responses API, this parameter has moved to "
                f"'{_MOVED[moved]}'. Try again with the new parameter."
            )
            raise Refused(text, param=moved, code="unsupported_parameter")
        try:
            body = shaped(content, ResponsesRequest)
            tools = [tagged(one, TOOLS, f"tools[{at}]") for at, one in enumerate(body.tools or [])]
            reasons = model.reasons(body.reasoning.effort if body.reasoning else None)
            _check_parameters(body, model, reasons)
            names = _check_tools(body, tools)
            _check_format(body)
            raws = self._items(body)
            items = [self._check_item(one, at, model) for at, one in enumerate(raws)]
            self._check_order(items, stored=body.store is not False)
        except ShapeError as error:
            raise _refuse_shape(error) from None
        parts = tuple(map(canonical, [*(body.tools or []), body.instructions or "", *raws]))
        _check_length("\n".join(parts), model, body)
        return Prompt(
            model=body.model,
            stream=bool(body.stream),
            parts=parts,
            tools=names,
            reasons=reasons,
            body=body,
            own_tools=tuple(tool.type for tool in tools if isinstance(tool, ProviderTool)),
        )

    def _items(self, body: ResponsesRequest) -> list[dict[str, Any]]:
        """The whole input, with what earlier responses left and references resolved."""
        if body.input is None and body.prompt is None:
            raise Refused("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
        given = body.input or []
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        if body.previous_response_id is not None:
            if body.conversation is not None:
                text = (
                    "Mutually exclusive parameters: Ensure you are only providing one of: 'previous_response_id' or "
                    "'conversation'."
                )
                raise Refused(text, param="previous_response_id", code="mutually_exclusive_parameters")
            if body.previous_response_id not in self.ledger.responses:
                text = f"Previous response with id '{body.previous_response_id}' not found."
                raise Refused(text, param="previous_response_id", code="previous_response_not_found")
            items = [*self.ledger.responses[body.previous_response_id], *items]
        return items

    def _check_item(self, item: Any, place: int, model: OpenAIModel) -> Any:
        path = f"input[{place}]"
        if isinstance(item, dict) and "type" not in item:
            kind = "message" if "role" in item else "item_reference"
            item = {"type": kind, **item}
        read = tagged(item, ITEMS, path)
        prefix = PREFIXES.get(read.type)
        if prefix and read.id is not None and not read.id.startswith(prefix):
            text = f"Invalid '{path}.id': '{read.id}'. Expected an ID that begins with '{prefix}'."
            raise Refused(text, param=f"{path}.id", code="invalid_value")
        match read:
            case MessageItem(content=list() as parts):
                shapes = OUTPUTS if read.role == "assistant" else INPUTS
                self._check_parts(parts, shapes, f"{path}.content", model)
            case FunctionOutputItem(output=list() as parts):
                self._check_parts(parts, INPUTS, f"{path}.output", model)
            case ProviderItem(type="web_search_call") if "sources" in item.get("action", {}):
                unknown = f"{path}.action.sources"
                raise Refused(f"Unknown parameter: '{unknown}'.", param=unknown, code="unknown_parameter")
            case ItemReference() if read.id not in self.ledger.items:
                raise _not_found(read.id)
            case ItemReference():
                return tagged(self.ledger.items[read.id], ITEMS, path)
        return read

    def _check_parts(self, parts: Sequence[Any], shapes: Mapping[str, type], path: str, model: OpenAIModel) -> None:
        for at, one in enumerate(parts):
            here = f"{path}[{at}]"
            part = tagged(one, shapes, here)
            if isinstance(part, InputImage | InputFile) and not model.sees:
                raise Refused(f"Invalid content type. {part.type} is only supported by certain models.", param=here)
            if isinstance(part, InputImage):
                self._check_image(part, here)
            elif isinstance(part, InputFile):
                self._check_file(part, here)

    def _check_image(self, part: InputImage, at: str) -> None:
        if part.file_id is not None:
            check_file_id(part.file_id, f"{at}.file_id", self.ledger)
        elif part.image_url is None:
            path = f"{at}.image_url"
            raise Refused(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
        else:
            check_image_url(part.image_url, f"{at}.image_url", self.ledger)

    def _check_file(self, part: InputFile, at: str) -> None:
        if part.file_id is not None:
            check_file_id(part.file_id, f"{at}.file_id", self.ledger)
        elif part.file_data is not None:
            data = read_data_url(part.file_data)
            if data is None or data.content is None or part.filename is None:
                text = f"Invalid '{at}.file_data'. Expected a base64-encoded data URL and a 'filename'."
                raise Refused(text, param=f"{at}.file_data", code="invalid_value")
        elif part.file_url is None:
            path = f"{at}.file_id"
            raise Refused(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
        elif part.file_url in self.ledger.unreachable:
            raise Refused(f"Error while downloading {part.file_url}.", param=f"{at}.file_url", code="invalid_file_url")

    def _check_order(self, items: Sequence[Any], *, stored: bool) -> None:
        _check_duplicates(items)
        _check_pairs(items)
        latest = max(
            (at for at, one in enumerate(items) if isinstance(one, MessageItem) and one.role == "user"), default=0
        )
        before: set[str] = set()
        for at, item in enumerate(items):
            if isinstance(item, ReasoningItem):
                before.add(self._check_reasoning(item, stored=stored))
                follower = items[at + 1] if at + 1 < len(items) else None
                led_to = self.ledger.led_to(str(item.id))
                if (
                    follower is None
                    or (led_to is not None and follower.id != led_to)
                    or isinstance(follower, FunctionOutputItem)
                    or getattr(follower, "role", "") == "user"
                ):
                    text = f"Item '{item.id}' of type 'reasoning' was provided without its required following item."
                    raise Refused(text, param="input")
            elif isinstance(item, ProviderItem):
                self._check_item_reasoning(item, before)
            elif isinstance(item, FunctionCallItem):
                needed = self.ledger.reasoning_of_call.get(item.call_id)
                if needed is not None and needed not in before and (item.id is not None or at > latest):
                    text = (
                        f"Item '{item.id or item.call_id}' of type 'function_call' was provided without its required "
                        f"'reasoning' item: '{needed}'."
                    )
                    raise Refused(text, param="input")

    def _check_item_reasoning(self, item: ProviderItem, before: set[str]) -> None:
        needed = self.ledger.reasoning_of_item.get(str(item.id))
        if needed is not None and needed not in before:
            text = f"Item '{item.id}' of type '{item.type}' was provided without its required 'reasoning' item."
            raise Refused(text, param="input")

    def _check_reasoning(self, item: ReasoningItem, *, stored: bool) -> str:
        """The id of the reasoning that this item stands for."""
        if item.encrypted_content is None:
            if item.id is None or item.id not in self.ledger.items:
                raise _not_found(str(item.id))
            return item.id
        reasoning_id, _, signature = item.encrypted_content.partition(".")
        if signature != sign("reasoning", reasoning_id):
            text = (
                f"The encrypted content {item.encrypted_content[:4]}... could not be verified. Reason: Encrypted "
                "content could not be decrypted or parsed."
            )
            raise Refused(text, code="invalid_encrypted_content")
        return reasoning_id

    def whole(self, prompt: Prompt, answer: Answer, tokens: Tokens) -> dict[str, Any]:
        """A response."""
        return self._keep(prompt, render_response(self.ledger, prompt, answer, tokens))

    def stream(self, prompt: Prompt, answer: Answer, tokens: Tokens) -> Iterator[bytes]:
        """The events of a response, numbered."""
        failure = None if answer.fails is None else self.fail(answer.fails)
        response = self._keep(prompt, render_response(self.ledger, prompt, answer, tokens))
        return response_events(response, prompt, answer, failure)

    def error_event(self, refused: Refused) -> bytes:
        """Nothing further: the stream has told of its failure as a response."""
        return b""

    def _keep(self, prompt: Prompt, response: dict[str, Any]) -> dict[str, Any]:
        """Remember a response that is stored, with all that came before it."""
        if prompt.body.store is not False:
            self.ledger.items.update({item["id"]: item for item in response["output"]})
            self.ledger.responses[response["id"]] = [*self._items(prompt.body), *response["output"]]
        return response


def _refuse_shape(error: ShapeError) -> Refused:
    """Of an item or a part of an unknown type, the service names the place and not its field."""
    refused = refuse_shape(error)
    if refused.code == "invalid_value" and refused.param is not None and refused.param.startswith("input["):
        refused.param = refused.param.removesuffix(".type")
    return refused


def _check_parameters(body: ResponsesRequest, model: OpenAIModel, reasons: bool) -> None:
    effort = body.reasoning.effort if body.reasoning else None
    if body.reasoning is not None and not model.efforts:
        text = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
        raise Refused(text, param="reasoning.effort", code="unsupported_parameter")
    if effort is not None and effort not in model.efforts:
        text = f"Unsupported value: '{effort}' is not supported with this model."
        raise Refused(text, param="reasoning.effort", code="unsupported_value")
    if "reasoning.encrypted_content" in (body.include or []) and not model.efforts:
        raise Refused("Encrypted content is not supported with this model.", param="include")
    for name in ("temperature", "top_p", "top_logprobs"):
        if reasons and getattr(body, name) is not None:
            raise Refused(f"Unsupported parameter: '{name}' is not supported with this model.", param=name)
    if body.stream_options is not None and not body.stream:
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise Refused(text, param="stream_options")
    if (body.max_output_tokens or 0) > model.longest_answer:
        text = f"max_output_tokens is too large: this model supports at most {model.longest_answer} output tokens."
        raise Refused(text, param="max_output_tokens", code="integer_above_max_value")
    check_metadata(body.metadata)


def _check_tools(body: ResponsesRequest, tools: Sequence[FunctionTool | ProviderTool]) -> frozenset[str]:
    for at, tool in enumerate(tools):
        if isinstance(tool, FunctionTool):
            check_function(tool, f"tools[{at}]")
    names = frozenset(tool.name for tool in tools if tool.name is not None)
    choice = body.tool_choice
    if isinstance(choice, dict) and choice.get("type") == "function" and choice.get("name") not in names:
        raise Refused("Tool choice 'function' not found in 'tools' parameter.", param="tool_choice")
    if isinstance(choice, dict) and choice.get("type") in TOOLS and choice["type"] not in {tool.type for tool in tools}:
        raise Refused(f"Tool choice '{choice['type']}' not found in 'tools' parameter.", param="tool_choice")
    if choice == "required" and not tools:
        text = "Tool choice 'required' must be specified with 'tools' parameter."
        raise Refused(text, param="tool_choice")
    return names


def _check_format(body: ResponsesRequest) -> None:
    wanted = body.text.format if body.text else None
    if wanted is None:
        return
    if wanted.type == "json_object" and "json" not in json.dumps([body.input, body.instructions]).lower():
        text = (
            "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
            "'json_object'."
        )
        raise Refused(text, param="input")
    if wanted.type == "json_schema":
        for name in ("name", "schema"):
            if getattr(wanted, name) is None:
                path = f"text.format.{name}"
                raise Refused(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")
        fault = openai_strict_fault(wanted.schema or {}) if wanted.strict else None
        if fault is not None:
            text = f"Invalid schema for response_format '{wanted.name}': {fault}"
            raise Refused(text, param="text.format.schema", code="invalid_json_schema")


def _check_length(text: str, model: OpenAIModel, body: ResponsesRequest) -> None:
    if tokens(len(text)) > model.window and body.truncation != "auto":
        message = "Your input exceeds the context window of this model. Please adjust your input and try again."
        raise Refused(message, param="input", code="context_length_exceeded")


def _check_duplicates(items: Sequence[Any]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.id is not None and item.id in seen:
            text = f"Duplicate item found with id {item.id}. Remove duplicate items from your input and try again."
            raise Refused(text, param="input")
        if item.id is not None:
            seen.add(item.id)


def _check_pairs(items: Sequence[Any]) -> None:
    waiting: list[str] = []
    for item in items:
        if isinstance(item, FunctionCallItem):
            waiting.append(item.call_id)
        elif isinstance(item, FunctionOutputItem):
            if item.call_id not in waiting:
                text = f"No tool call found for function call output with call_id {item.call_id}."
                raise Refused(text, param="input")
            waiting.remove(item.call_id)
    if waiting:
        raise Refused(f"No tool output found for function call {waiting[0]}.", param="input")


def _not_found(item_id: str) -> Refused:
    text = (
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. Try again with "
        "`store` set to true, or remove this item from your input."
    )
    return Refused(text, param="input", status=404)
