"""What passes between a turn, its model and its tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from tenuto.errors import FailureReason
from tenuto.model.attachment import Content
from tenuto.model.memory import Memory
from tenuto.model.message import Message
from tenuto.model.parameters import NO_PARAMETERS, AnswerSchema, FinishReason, ModelParameters
from tenuto.model.policy import Preset
from tenuto.model.prompt import Language, Piece, PromptMessage, PromptPolicy
from tenuto.model.provider_items import NO_PROVIDER_TOOLS, ProviderTools
from tenuto.model.scope import Scope
from tenuto.model.session import Session
from tenuto.model.values import Json, JsonObject, Value

# The only argument of a call whose arguments are no JSON; its value is what the model wrote. Pydantic AI uses the name.
UNREADABLE: Final = "INVALID_JSON"
# Choices between tools; any other one is the name of a tool.
AUTO: Final = "auto"
NONE: Final = "none"
REQUIRED: Final = "required"


class ToolSpec(Value, frozen=True, kw_only=True):
    """A tool as described to a model; `parameters` is a JSON schema of an object, which a `strict` tool demands."""

    name: str
    description: str
    parameters: JsonObject
    strict: bool | None = None


def answer_tool(schema: AnswerSchema, taken: Collection[str]) -> ToolSpec:
    """A tool whose arguments are the answer, for models that know no other way; its name is none of those `taken`."""
    name = schema.name
    while name in taken:
        name += "_"
    about = schema.description or "Gives the answer to the user, in this form."
    return ToolSpec(name=name, description=about, parameters=schema.schema or {"type": "object"})


class ToolCall(Value, frozen=True, kw_only=True):
    """A model asks for a tool."""

    id: str
    name: str
    arguments: JsonObject = {}

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text; unreadable ones as the model wrote them."""
        return arguments_text(self.arguments)


def arguments_text(arguments: JsonObject) -> str:
    """The arguments of a call as `ToolCall.arguments_text` has them."""
    if arguments.keys() == {UNREADABLE}:
        return str(arguments[UNREADABLE])
    return msgspec.json.encode(arguments).decode()


class ToolContext(Value, frozen=True, kw_only=True, gc=True):
    """What a tool may know of the turn it is called in.

    `scope` is the caller's, from the credential: whose orders, whose records. `state` is what the assistant's tools
    left with its newest answer that stands (the previous result set), so that "the first one" can be found again.
    `history` is the talk before the question, oldest first, as far as it was loaded; an isolated persona gets its own
    turns only. `persona_name` is the persona's display name in the question's language. `speaker_names` gives users the
    names they are shown under, where several may speak. `memories` were found for the question: quotations of earlier
    conversations, and no evidence. `turn_key` is the same each time this turn is tried: the idempotency key of what is
    done for it elsewhere; `None` if nothing is stored of the turn.
    """

    scope: Scope
    session: Session | None
    question: str
    language: Language
    now: datetime
    state: JsonObject = {}
    history: tuple[Message, ...] = ()
    persona: str | None = None
    persona_name: str | None = None
    speaker_names: Mapping[str, str] = MappingProxyType({})
    memories: tuple[Memory, ...] = ()
    turn_key: str | None = None


class ToolOutput(Value, frozen=True, kw_only=True, gc=True):
    """What a tool answers.

    `output` is for the model, `snippets` is evidence for the prompt, `data` goes into the reply beside the words, and
    `state` replaces the named keys of the assistant's state from this turn's answer on. A `final_answer` answers the
    user at once: the model is not asked (a refusal, a form to fill in). `degraded` names what the answer had to do
    without, `intent` is what the user wants in a word of the assistant's, which the session's context keeps.
    """

    output: Json
    snippets: tuple[Piece, ...] | None = None
    data: JsonObject = {}
    state: JsonObject = {}
    final_answer: str | None = None
    degraded: tuple[str, ...] = ()
    intent: str | None = None


REPAIR: Final = "repair"
"""The id of the step in which an answer without the demanded form is asked for again. What came before it is none of
the answer."""


class StepChanged(Value, frozen=True, kw_only=True):
    """A step of an assistant that works in steps, or the repair of an answer, has begun or ended.

    `id` names the step within the turn, `titles` are what a user is told it is. `milliseconds` are there at its end,
    `error` is the code of a failure.
    """

    id: str
    state: Literal["started", "done", "failed"]
    titles: Mapping[Language, str] = MappingProxyType({})
    milliseconds: float | None = None
    error: str | None = None


class ToolResult(Value, frozen=True, kw_only=True, gc=True):
    """A tool that was run in this turn, before the model was asked or because it asked; `error` names the error."""

    call: ToolCall
    output: Json = None
    error: str | None = None


class ModelRequest(Value, frozen=True, kw_only=True):
    """Everything a model is given for one answer.

    `messages` is the prompt; of them the first `redacted_messages` hold no more than the privacy policy lets a model
    see. `tool_choice` is `auto`, `none`, `required` or the name of the tool that must be called; with a `schema` the
    answer must have that form, and a call of the `answer_tool` is the answer. `provider_tools` are run by the provider
    itself. The answer has at most `reply_tokens`, or what the model gives. For a `background` request no user waits.
    `contents` are the bytes of the attachments that the messages show, by id; with `require_attachments` no model
    answers that does not take them. `tool_results` are the tools that ran in this turn, those before the model
    included. The rest is for models that do not read prompts (the offline one): the question, its language, the talk
    and the state.
    """

    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = AUTO
    background: bool = False
    provider_tools: ProviderTools = NO_PROVIDER_TOOLS
    parameters: ModelParameters = NO_PARAMETERS
    schema: AnswerSchema | None = None
    answer_tool: str | None = None
    contents: Mapping[str, Content] = MappingProxyType({})
    reply_tokens: int | None = None
    cacheable_messages: int = 0
    redacted_messages: int = 0
    require_attachments: bool = False
    tool_results: tuple[ToolResult, ...] = ()
    tool_context: ToolContext | None = None

    @property
    def requires_call(self) -> bool:
        """Whether the answer must be a call of a tool."""
        return self.tool_choice not in (AUTO, NONE)


class TextDelta(Value, frozen=True, kw_only=True):
    """A piece of the answer's text; with `refusal` the model says why it declines to answer."""

    text: str
    refusal: bool = False


class ReasoningDelta(Value, frozen=True, kw_only=True):
    """A piece of what the model thinks; `index` names the thought within the answer. An empty one marks its place.

    One with a `part` ends the thought, for readers that hand it back to its provider: it is the part that is stored.
    """

    text: str
    index: int = 0
    part: JsonObject | None = None


class ReasoningDone(Value, frozen=True, kw_only=True):
    """A whole thought, as the part that goes back to its provider."""

    part: JsonObject
    index: int = 0


class ProviderItem(Value, frozen=True, kw_only=True):
    """The provider has begun to run a tool of its own, or is `done` with it: then the part is whole."""

    part: JsonObject
    done: bool = False


class ToolCallRequested(Value, frozen=True, kw_only=True):
    """The model asks for a tool before it goes on."""

    call: ToolCall


class ModelDone(Value, frozen=True, kw_only=True):
    """The model is done; `model` is the one that really answered, `used_fallback` that it was not the first choice.

    Then `fallback_reason` and `fallback_message` say why the first one did not answer, without words of users.
    `redacted` counts what the privacy policy took out of its words, by name. Of the input, `cached_tokens` were read
    from the provider's cache and `cache_write_tokens` written to it; of the output, `reasoning_tokens` were thought and
    not said. `logprobs` are those of the text's tokens, as the chat completions API has them, `annotations` what the
    text cites. `dropped_parameters` name what a fallback does not take, `dropped_reasoning` counts the thoughts in the
    prompt that it was not sent, since another provider made them, `dropped_items` the same of what a provider's own
    tools did, and `media_left_out` the pictures, sounds and files that it did not get.
    `response_model` and `response_id` are what the provider calls the model and the answer.
    """

    model: str
    finish: FinishReason = FinishReason.STOP
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    logprobs: tuple[JsonObject, ...] | None = None
    annotations: tuple[JsonObject, ...] = ()
    dropped_parameters: tuple[str, ...] = ()
    dropped_reasoning: int = 0
    dropped_items: int = 0
    media_left_out: int = 0
    cost_nanos: int = 0
    offline: bool = False
    used_fallback: bool = False
    fallback_reason: FailureReason | None = None
    fallback_message: str = ""
    redacted: dict[str, int] = {}
    response_model: str = ""
    response_id: str = ""


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | ReasoningDone | ProviderItem | ToolCallRequested | ModelDone


def marks_place(event: ModelEvent) -> bool:
    """Whether an event says nothing yet: until then another attempt, or another model, may answer instead."""
    return isinstance(event, ReasoningDelta) and not event.text


class Persona(Value, frozen=True, kw_only=True):
    """A character an assistant speaks as: its names and its own words for the system prompt, by language."""

    id: str
    names: Mapping[Language, str] = MappingProxyType({})
    system: Mapping[Language, str] = MappingProxyType({})


class Summary(Value, frozen=True, kw_only=True):
    """The summary of a conversation up to a message.

    `through` and `through_id` name the last message it covers, `since` is where context began when it was made, and
    `messages` how many it speaks for, those of earlier summaries included; 0 if unknown. `instructions` are the system
    messages that it covers, whole: they are never told in short.
    """

    text: str
    through: int
    through_id: str
    since: int = 1
    messages: int = 0
    tokens: int = 0
    made_by: str = ""
    instructions: tuple[str, ...] = ()


class TurnSnapshot(Value, frozen=True, kw_only=True):
    """What upkeep is told of a turn: of one that has begun (memories), and of one that is stored (title, compression).

    `session` is its head at that moment. `claims_title` says that this turn claimed the title and so is the one to
    have a better one made. `log_tail` is the end of the log as the turn knows it, its own messages included: with it a
    look at the store is spared where nothing is due. `reserved_tokens` are the tokens of the prompt that talk cannot
    have: system prompt, preferences, and the share of recall. `persona` is set if it is isolated. `stale_before` is the
    first message that is context, if what precedes it, from `stale_from` on, became stale with this turn; an edit has
    removed the messages from `edited_from` to before `edited_until`. With `recalls`, what the user said is remembered.
    """

    scope: Scope
    session: Session
    assistant: str
    language: Language
    policies: Preset
    prompt: PromptPolicy
    question: str
    answer: str = ""
    claims_title: bool = False
    log_tail: tuple[Message, ...] = ()
    reserved_tokens: int = 0
    persona: str | None = None
    stale_from: int = 0
    stale_before: int = 0
    edited_from: int = 0
    edited_until: int = 0
    recalls: bool = False
