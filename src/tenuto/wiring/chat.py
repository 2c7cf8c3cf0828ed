"""The wiring of the chat: which assistants there are, which models answer, what follows a turn.

Apart from `app`, and loaded when the first turn is asked for, so that a program that only keeps sessions starts fast.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.assistants import Assistant, AssistantRegistry
from tenuto.assistants.custom import load_folder
from tenuto.assistants.goods import goods_assistant
from tenuto.assistants.npc import npc_assistant
from tenuto.assistants.registry import general_assistant
from tenuto.chat import Chat, ChatDeps, ChatLimits, Spending
from tenuto.chat.deps import no_span
from tenuto.context import TokenCounter, check_budget, encoding_for
from tenuto.context.tokens import to_text
from tenuto.errors import InvalidSetting
from tenuto.llm import OFFLINE, GivenModel, ModelConnection, complete, open_model, provider_of
from tenuto.llm.embedding import open_embedder
from tenuto.model import Scope, Usage
from tenuto.model.policy import preset
from tenuto.model.prompt import Language
from tenuto.ports import ChatModel, Clock, Embedder, Span, StateStore, Store
from tenuto.privacy.redacting_model import RedactingModel
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.sessions import Sessions
from tenuto.settings import Settings
from tenuto.telemetry import open_spans
from tenuto.upkeep import Small, Upkeep

# How long closing waits for titles and summaries under way; what is cut off is found due again.
_LAST_WORK: Final = timedelta(seconds=10)


@asynccontextmanager
async def open_chat(
    settings: Settings,
    *,
    store: Store,
    screen: Redactor,
    sessions: Sessions,
    upkeep: Upkeep,
    clock: Clock,
    models: Mapping[str, GivenModel],
    assistants: Sequence[Assistant],
) -> AsyncIterator[Chat]:
    """Turns with the assistants of the settings and those given here, as long as their models are open.

    Raises:
        InvalidSetting: a model, an assistant or a budget of the settings cannot be had.
    """
    known = AssistantRegistry([*_shipped(settings, store.state), *_own(settings, assistants)], settings.assistant)
    async with AsyncExitStack() as stack:
        shelf: dict[str, ChatModel] = {}
        home = provider_of(settings.model, models)
        small = settings.small_model or settings.model
        for name in {settings.model, small, *(each.model for each in known if each.model is not None)}:
            try:
                shelf[name] = await stack.enter_async_context(_opened(settings, name, models, home))
            except InvalidSetting as unfit:
                raise _whose(unfit, known if name not in (settings.model, small) else (), name) from None
        for assistant in known:
            _check(assistant, shelf[assistant.model or settings.model])
        # The offline model would make neither titles nor summaries better than extraction does.
        spending = Spending(state=store.state, budgets=settings.budgets(), clock=clock)
        retelling = _small(shelf[small], settings.model_timeout, spending) if small != OFFLINE else None
        upkeep.equip(small=retelling)
        # Before the models close: what was started for finished turns may still ask them.
        stack.push_async_callback(upkeep.drain, _LAST_WORK)
        screened = {name: RedactingModel(model=model, screen=screen) for name, model in shelf.items()}
        span: Span = await stack.enter_async_context(open_spans()) if settings.telemetry else no_span
        yield Chat(
            ChatDeps(
                sessions=sessions,
                traces=store.traces,
                assistants=known,
                models=lambda name: screened[name or settings.model],
                redaction=TurnRedaction(screen),
                embedder=await stack.enter_async_context(_embedder(settings, home)),
                spending=spending,
                clock=clock,
                afterwards=upkeep,
                titles_by_model=retelling is not None,
                limits=ChatLimits(model_timeout=settings.model_timeout, tool_timeout=settings.tool_timeout),
                span=span,
            )
        )


def _opened(
    settings: Settings, name: str, given: Mapping[str, GivenModel], home: str
) -> AbstractAsyncContextManager[ChatModel]:
    # Address and key belong to the provider of the main model; another one finds its own in the environment.
    return open_model(
        name,
        base_url=settings.model_base_url,
        api_key=settings.model_api_key,
        timeout=settings.model_timeout,
        given=given,
        home=home,
    )


def _embedder(settings: Settings, home: str) -> AbstractAsyncContextManager[Embedder | None]:
    # Where no provider answers, address and key can only be meant for this one; a server of one's own needs no prefix.
    ours = (home or "openai") in (OFFLINE, settings.embedder.partition(":")[0])
    access = (
        ModelConnection(base_url=settings.model_base_url, api_key=settings.model_api_key) if ours else ModelConnection()
    )
    return open_embedder(settings.embedder, access)


def _whose(unfit: InvalidSetting, assistants: Iterable[Assistant], model: str) -> InvalidSetting:
    """What is wrong with a model, with the file that names it: the settings need not."""
    for assistant in assistants:
        if assistant.model == model:
            return InvalidSetting("assistants", f"{assistant.file or assistant.name}: {unfit}")
    return unfit


def _small(model: ChatModel, timeout: timedelta, spending: Spending) -> Small:
    """The model for titles and summaries; what it costs is its tenant's."""

    async def small(scope: Scope, instructions: str, text: str, tokens: int) -> str:
        said, ended = await complete(model, instructions, text, tokens, timeout)
        usage = Usage(tokens=ended.input_tokens + ended.output_tokens, cost_nanos=ended.cost_nanos)
        await spending.add(scope, usage)
        return said

    return small


def _shipped(settings: Settings, state: StateStore) -> Iterator[Assistant]:
    yield general_assistant(settings.policies(), settings.prompt())
    yield goods_assistant(state, settings.apply_limits(preset("goods_qa")))
    yield npc_assistant(
        settings.npc_policies(),
        remembers=settings.memory_enabled,
        corpus=Path(settings.npc_corpus) if settings.npc_corpus else None,
    )


def _own(settings: Settings, given: Sequence[Assistant]) -> Iterator[Assistant]:
    """Those of the folder and those given in code, under this installation's limits as the shipped ones are."""
    read = load_folder(Path(settings.assistants)) if settings.assistants else ()
    for assistant in (*read, *given):
        yield dataclasses.replace(assistant, policies=settings.apply_limits(assistant.policies))


def _check(assistant: Assistant, model: ChatModel) -> None:
    """Refuse a budget that a system prompt fills, before the first question."""
    counter = TokenCounter(*encoding_for(model.name))
    tools = sum(counter.count_fixed(to_text(msgspec.to_builtins(tool.spec))) for tool in assistant.tools)
    prompt = replace(assistant.prompt, reply=assistant.prompt.reply + math.ceil(tools * counter.margin))
    for language in Language:
        for persona in (None, *assistant.personas.values()):
            try:
                check_budget(prompt, assistant.system_prompt(persona, language), counter, language)
            except InvalidSetting as unfit:
                why = str(unfit).removeprefix(f"{unfit.setting}: ")
                raise InvalidSetting(unfit.setting, f"{why} (assistant {assistant.name})") from None
