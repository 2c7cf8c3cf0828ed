"""The wiring of the chat: assistants, models, and the work that follows a turn.

Imported with the first turn, so that a program that only stores sessions starts fast.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.assistants import Assistant, AssistantRegistry, Missing
from tenuto.assistants.assistant import general_assistant, plain_assistant
from tenuto.assistants.custom import load_folder, missing_of
from tenuto.assistants.goods import goods_assistant
from tenuto.assistants.legal import TASK_TYPE, legal_assistant
from tenuto.assistants.npc import npc_assistant
from tenuto.chat import Chat, ChatDeps, ChatLimits
from tenuto.context import TokenCounter, check_budget, encoding_for, fit_prompt
from tenuto.errors import InvalidSetting, PackageMissing
from tenuto.extras import install_line
from tenuto.llm import OFFLINE, GivenModel, MissingModel, ModelCallLog, ModelSlots, complete, open_model
from tenuto.llm.choice import ModelChoice
from tenuto.llm.reach import names_local_model
from tenuto.model import Scope
from tenuto.model.analytics import UsageCounts
from tenuto.model.parameters import AnswerSchema
from tenuto.model.prompt import Language
from tenuto.model.values import to_text
from tenuto.ports import ChatModel, Clock, OwnersOf, StateStore, Store, TaskEngine, Telemetry, facts_of
from tenuto.privacy.redacting_model import RedactingModel
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.rules.span import ON_REQUEST
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.recall.service import Memories
from tenuto.sessions import Sessions
from tenuto.sessions.profiles import Profiles
from tenuto.sessions.usage import Spending
from tenuto.settings import Settings
from tenuto.telemetry import open_telemetry
from tenuto.upkeep import LAST_WORK, SmallModel, Upkeep
from tenuto.upkeep.memory_sweep import MemorySweep
from tenuto.wiring.models import home_provider
from tenuto.wiring.tasks import EXTRA as TASKS_EXTRA
from tenuto.wiring.tasks import can_run_plans

# Of one answer for a title, a summary or a note. A model on this machine has no limit for these either.
_BACKGROUND_TIMEOUT: Final = timedelta(minutes=1)
# What to do where a model reads too little for an assistant.
_NO_ROOM: Final = "choose a model that reads more"


@asynccontextmanager
async def open_chat(
    settings: Settings,
    *,
    store: Store,
    redactor: Redactor,
    sessions: Sessions,
    memories: Memories,
    owners_of: OwnersOf,
    upkeep: Upkeep,
    spending: Spending,
    clock: Clock,
    models: Mapping[str, GivenModel],
    assistants: Sequence[Assistant],
    engine: Callable[[], Awaitable[TaskEngine]],
) -> AsyncIterator[Chat]:
    """Open the chat with the assistants of the settings and those given here; `engine` is opened when one needs it.

    Raises:
        InvalidSetting: a model, an assistant or a budget of the settings is not valid, or the default assistant
            takes no turns. Another one whose file cannot be loaded has its cause as `missing`.
    """
    known = AssistantRegistry(
        [*_builtin_assistants(settings, store.state, engine, models), *_custom_assistants(settings, assistants)],
        settings.assistant,
    )
    async with AsyncExitStack() as stack:
        home, small = home_provider(settings, models), settings.summarizer_model or settings.model
        calls = ModelCallLog(clock)
        telemetry = await stack.enter_async_context(open_telemetry()) if settings.telemetry else None
        opening = _ModelOpening(stack, settings, models, home, calls, telemetry)
        opened, known = await _open_models(opening, settings, known)
        timeout = settings.model_timeout or ChatLimits().model_timeout
        limits = ChatLimits(
            model_timeout=timeout, tool_timeout=settings.tool_timeout, prompt_tokens=settings.max_prompt_tokens
        )
        checked = [
            _check_assistant(each, opened[each.model or settings.model], limits, is_default=each.name == known.default)
            for each in known
        ]
        known = AssistantRegistry(checked, known.default)
        _check_default(known)
        # The offline model makes titles and summaries no better than extraction does.
        summarizer_model = _make_small(opened[small], timeout, spending) if small != OFFLINE else None
        sweep = None
        if settings.memories:
            sweep = MemorySweep(
                memories=memories,
                store=store,
                clock=clock,
                capture_stale=lambda owner: upkeep.after_turn.capture_stale(owner),
            )
        upkeep.equip(model=summarizer_model, memories=memories, memory_sweep=sweep)
        # Before the models close: work for finished turns may still call them.
        stack.push_async_callback(upkeep.drain, LAST_WORK)
        screened: dict[str | None, ChatModel] = {
            name: RedactingModel(model=model, redactor=redactor) for name, model in opened.items()
        }
        screened[None] = screened[""] = screened[settings.model]

        async def open_screened(name: str) -> ChatModel:
            return RedactingModel(model=await opening.open(name), redactor=redactor)

        yield Chat(
            ChatDeps(
                sessions=sessions,
                traces=store.traces,
                assistants=known,
                models=screened.__getitem__,
                model_choice=ModelChoice(settings.model_names(), screened, open_screened),
                redaction=TurnRedaction(redactor),
                embedder=memories.embedder,
                memories=memories,
                profiles=Profiles(store.state, owners_of),
                spending=spending,
                clock=clock,
                follow_up=upkeep.after_turn,
                unknown_models_get_default=settings.unknown_models == "default",
                titles_by_model=summarizer_model is not None,
                shows_reasoning=settings.show_reasoning,
                limits=limits,
                telemetry=telemetry,
                calls=calls,
            )
        )


class _ModelOpening:
    """Opens models with the addresses, keys and limits of the settings, and closes them with the stack."""

    def __init__(
        self,
        stack: AsyncExitStack,
        settings: Settings,
        given: Mapping[str, GivenModel],
        home: str,
        calls: ModelCallLog,
        telemetry: Telemetry | None,
    ) -> None:
        self._stack = stack
        self._settings = settings
        self._given = given
        self._home = home
        self._calls = calls
        self._telemetry = telemetry
        self._slots = ModelSlots(settings.model_slots)

    async def open(self, name: str) -> ChatModel:
        """Open a model, or a chain of them.

        Raises:
            InvalidSetting: it cannot be opened.
        """
        # Address and key belong to the provider of the main model; others have theirs in the environment.
        model = open_model(
            name,
            base_url=self._settings.model_base_url,
            api_key=self._settings.model_api_key,
            timeout=self._settings.model_timeout,
            first_token_timeout=self._settings.first_token_timeout,
            slots=self._slots,
            given=self._given,
            home=self._home,
            calls=self._calls,
            context_windows=self._settings.context_windows(),
            telemetry=self._telemetry,
        )
        return await self._stack.enter_async_context(model)


async def _open_models(
    opening: _ModelOpening, settings: Settings, assistants: AssistantRegistry
) -> tuple[dict[str, ChatModel], AssistantRegistry]:
    """The models of the settings and of the assistants, by name, and the assistants, of which some may lack theirs.

    A main model that cannot be opened stops the start, as nothing would answer. One that a single assistant names stops
    that assistant alone, if a package is missing or a file names it.
    """
    of_settings = {settings.model, settings.summarizer_model or settings.model}
    opened: dict[str, ChatModel] = {}
    failures: dict[str, InvalidSetting] = {}
    for name in dict.fromkeys([*(each.model for each in assistants if each.model is not None), *of_settings]):
        try:
            opened[name] = await opening.open(name)
        except InvalidSetting as error:
            if name in of_settings or error.setting != "model":
                raise _blame(error, name, settings) from None
            opened[name] = MissingModel(name, error.install if isinstance(error, PackageMissing) else "")
            failures[name] = error
    if not failures:
        return opened, assistants
    known = [_without_model(each, failures[each.model]) if each.model in failures else each for each in assistants]
    return opened, AssistantRegistry(known, assistants.default)


def _without_model(assistant: Assistant, error: InvalidSetting) -> Assistant:
    """The assistant, which takes no turns as its own model cannot be opened.

    Raises:
        InvalidSetting: a program gave it a model that is none.
    """
    if isinstance(error, PackageMissing):
        return dataclasses.replace(assistant, missing=Missing(install=error.install))
    if assistant.file is None:
        raise InvalidSetting("assistants", f"{assistant.name}: {error}") from None
    return dataclasses.replace(assistant, missing=missing_of(assistant.file, error))


def _blame(error: InvalidSetting, name: str, settings: Settings) -> InvalidSetting:
    """The error with the setting that names this model."""
    if error.setting != "model" or name == settings.model:
        return error
    if isinstance(error, PackageMissing):
        return PackageMissing("summarizer_model", name, install=error.install)
    return InvalidSetting("summarizer_model", str(error).removeprefix("model: "))


@asynccontextmanager
async def open_small(
    settings: Settings, *, models: Mapping[str, GivenModel], spending: Spending
) -> AsyncIterator[SmallModel]:
    """Open the model for summaries alone, for programs that call their own model.

    Raises:
        InvalidSetting: the settings' model is not valid.
    """
    async with AsyncExitStack() as stack:
        telemetry = await stack.enter_async_context(open_telemetry()) if settings.telemetry else None
        opening = open_model(
            settings.summarizer_model or settings.model,
            base_url=settings.model_base_url,
            api_key=settings.model_api_key,
            timeout=settings.model_timeout,
            first_token_timeout=settings.first_token_timeout,
            slots=ModelSlots(settings.model_slots),
            given=models,
            home=home_provider(settings, models),
            telemetry=telemetry,
        )
        model = await stack.enter_async_context(opening)
        yield _make_small(model, settings.model_timeout or ChatLimits().model_timeout, spending)


def _make_small(model: ChatModel, timeout: timedelta, spending: Spending) -> SmallModel:
    """The model for titles and summaries; its cost counts for the tenant."""

    timeout = min(timeout, _BACKGROUND_TIMEOUT)

    async def small(scope: Scope, instructions: str, text: str, tokens: int, schema: AnswerSchema | None = None) -> str:
        text, ended = await complete(model, instructions, text, tokens, timeout, schema)
        counts = UsageCounts(
            input_tokens=ended.input_tokens, output_tokens=ended.output_tokens, cost_nanos=ended.cost_nanos
        )
        await spending.add(scope, counts)
        return text

    return small


def _builtin_assistants(
    settings: Settings, state: StateStore, engine: Callable[[], Awaitable[TaskEngine]], given: Mapping[str, GivenModel]
) -> Iterator[Assistant]:
    yield general_assistant(settings.policies(), settings.prompt())
    yield goods_assistant(state, settings.goods_policies())
    yield npc_assistant(
        settings.npc_policies(),
        remembers=settings.memory_enabled,
        corpus=Path(settings.npc_corpus) if settings.npc_corpus else None,
    )
    yield legal_assistant(
        engine,
        decision_agent=settings.policies().tasks.owner_of(TASK_TYPE),
        policies=settings.legal_policies(),
        missing=None if can_run_plans() else Missing(install=install_line(TASKS_EXTRA)),
        patient=settings.model_timeout is None and names_local_model(settings.model, settings.model_base_url, given),
    )
    yield plain_assistant(settings.policies(), settings.prompt())


def _custom_assistants(settings: Settings, given: Sequence[Assistant]) -> Iterator[Assistant]:
    """Assistants of the folder and those given in code, under this installation's limits."""
    loaded = load_folder(Path(settings.assistants)) if settings.assistants else ()
    for assistant in (*loaded, *given):
        yield dataclasses.replace(assistant, policies=settings.apply_limits(assistant.policies))


def _check_assistant(assistant: Assistant, model: ChatModel, limits: ChatLimits, *, is_default: bool) -> Assistant:
    """The assistant; one of a file that does not fit is missing, and one that its model has no room for.

    Raises:
        InvalidSetting: the settings, or what a program gave, do not fit.
    """
    try:
        _check_budget(assistant, model, limits.prompt_tokens)
        _check_types(assistant)
    except InvalidSetting as error:
        if assistant.file is None:
            if assistant.prompt.budget is not None or is_default:
                raise
            return dataclasses.replace(assistant, missing=Missing(cause=str(error), advice=_NO_ROOM))
        return dataclasses.replace(assistant, missing=missing_of(assistant.file, error))
    return assistant


def _check_default(assistants: AssistantRegistry) -> None:
    """Refuse a default assistant that takes no turns: most requests name none."""
    missing = assistants.find(None).missing
    if missing is not None:
        why = f"{missing.cause}; {missing.advice}" if missing.cause else f"needs a package: {missing.install}"
        raise InvalidSetting("assistant", f"the default, {assistants.default!r}, cannot be loaded: {why}")


def _check_types(assistant: Assistant) -> None:
    unknown = sorted(set(assistant.policies.privacy_also) - ON_REQUEST)
    if unknown:
        why = f"{unknown[0][:32]!a} is not a type that can be searched on request: {', '.join(sorted(ON_REQUEST))}"
        raise InvalidSetting("privacy_also", f"{why} (assistant {assistant.name})")


def _check_budget(assistant: Assistant, model: ChatModel, most: int) -> None:
    """Refuse a budget that the system prompt fills; one that follows the model has at most so many tokens."""
    counter = TokenCounter(*encoding_for(model.name))
    tools = sum(counter.count_fixed(to_text(msgspec.to_builtins(tool.spec))) for tool in assistant.tools)
    policy = fit_prompt(assistant.prompt, facts_of(model).context_window, most)
    prompt = replace(policy, reply_tokens=policy.reply_tokens + math.ceil(tools * counter.margin))
    for language in Language:
        for persona in (None, *assistant.personas.values()):
            try:
                check_budget(prompt, assistant.system_prompt(persona, language), counter, language)
            except InvalidSetting as error:
                why = str(error).removeprefix(f"{error.setting}: ")
                raise InvalidSetting(error.setting, f"{why} (assistant {assistant.name})") from None
