"""OpenAI's models, which send files by their names and schemas as they are.

Pydantic AI sends each document as `filename.pdf`, and rewrites schemas until they fit the strict mode: the caller would
get answers of another form than the one asked for, where OpenAI would have refused it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from openai.types.chat import ChatCompletionUserMessageParam
from openai.types.responses import EasyInputMessageParam, ResponseIncludable
from pydantic_ai.messages import BinaryContent, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer

_Model = TypeVar("_Model", bound=Model)
FILE_NAME: Final = "filename"
"""The key of a content's metadata for its name."""


class VerbatimChatModel(OpenAIChatModel):
    """The chat completions API."""

    def customize_request_parameters(self, model_request_parameters: ModelRequestParameters) -> ModelRequestParameters:
        if _rewrites_for_openai(self):
            return model_request_parameters
        return super().customize_request_parameters(model_request_parameters)

    async def _map_user_prompt(self, part: UserPromptPart) -> ChatCompletionUserMessageParam:
        message = await super()._map_user_prompt(part)
        # Texts are written into the message.
        files = [one.get("file", one) for one in _items(message.get("content"))]
        _name_files([one for one in _documents(part) if not one.media_type.startswith("text/")], files)
        return message


class VerbatimResponsesModel(OpenAIResponsesModel):
    """The responses API."""

    def customize_request_parameters(self, model_request_parameters: ModelRequestParameters) -> ModelRequestParameters:
        if _rewrites_for_openai(self):
            return model_request_parameters
        return super().customize_request_parameters(model_request_parameters)

    async def _map_user_prompt(self, part: UserPromptPart) -> EasyInputMessageParam:
        message = await super()._map_user_prompt(part)
        _name_files(_documents(part), _items(message.get("content")))
        return message

    def _build_include(
        self, model_settings: OpenAIResponsesModelSettings, *, is_retrieve: bool = False
    ) -> list[ResponseIncludable]:
        include = super()._build_include(model_settings, is_retrieve=is_retrieve)
        # It says no more than what was just included, and Pydantic AI warns of it at every model that reasons.
        model_settings.pop("openai_logprobs", None)
        return include


def as_verbatim(model: Model) -> Model:
    """The model of OpenAI that sends files by their names; any other one as it is, so also a program's own class."""
    if type(model) is OpenAIChatModel:
        return same_model(VerbatimChatModel, model)
    return same_model(VerbatimResponsesModel, model) if type(model) is OpenAIResponsesModel else model


def same_model(kind: type[_Model], model: Model) -> _Model:
    """The same model as one of another class: it has the settings and the clients of the first, which opens and closes
    them."""
    made = kind.__new__(kind)
    made.__dict__.update(model.__dict__)
    return made


def _rewrites_for_openai(model: Model) -> bool:
    """Whether schemas would be changed for OpenAI itself, and not for what another server cannot read."""
    return issubclass(model.profile.get("json_schema_transformer") or object, OpenAIJsonSchemaTransformer)


def _items(content: object) -> list[dict[str, Any]]:
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


def _documents(part: UserPromptPart) -> list[BinaryContent]:
    contents = [] if isinstance(part.content, str) else part.content
    return [one for one in contents if isinstance(one, BinaryContent) and one.is_document]


def _name_files(documents: Sequence[BinaryContent], items: Iterable[dict[str, Any]]) -> None:
    """Write the names into the items that hold files, which are in the order of the documents."""
    files = [one for one in items if "file_data" in one]
    if len(files) != len(documents):
        return  # Some were sent in another form, so that which is which is not known.
    for file, document in zip(files, documents, strict=True):
        if name := (document.vendor_metadata or {}).get(FILE_NAME):
            file[FILE_NAME] = name
