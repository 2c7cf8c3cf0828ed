"""Models by their names: `offline`, any `provider:model`, one that a program hands over, or several in a row."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from datetime import timedelta
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from tenuto.errors import (
    ExtraMissing,
    FailureReason,
    InvalidSetting,
    ModelFailed,
    ModelTimeout,
    PackageMissing,
    TenutoError,
)
from tenuto.llm.calls import ModelCallLog, ModelCalls
from tenuto.llm.chain import FallbackChain
from tenuto.llm.offline import OfflineModel
from tenuto.llm.slots import ModelSlots
from tenuto.model.generation import ModelEvent, ModelRequest
from tenuto.model.parameters import NOTHING_KNOWN, ModelFacts, ModelParameters
from tenuto.model.values import Value
from tenuto.ports import ChatModel, Telemetry, Tool, facts_of, refused_parameters

if TYPE_CHECKING:
    from pydantic_ai.models import Model

_log = logging.getLogger(__name__)
OFFLINE: Final = "offline"
# The types that a program may hand over as a model.
GivenModel: TypeAlias = "ChatModel | Model"
_NOTHING_GIVEN: Final[Mapping[str, GivenModel]] = MappingProxyType({})
TIMEOUT: Final = timedelta(minutes=2)
FIRST_TOKEN: Final = timedelta(minutes=1)


class ModelConnection(Value, frozen=True, kw_only=True):
    """Address and key, where the provider's own variables do not tell them; `timeout` covers a whole answer.

    Without `of_settings`, the settings' address and key belong to another provider.

    `first_token_timeout` bounds the wait until the answer begins; 0 is no limit. Where they are `None`, a model on
    loopback may take as long as it needs, but not fall silent, and others have two minutes and one. A request that
    fails before is sent again `retries` times. `context_window` is the model's, in place of what is known of it. An
    `observed` model gets no spans of Pydantic AI beside ours.
    """

    base_url: str | None = None
    api_key: str | None = None
    of_settings: bool = True
    timeout: timedelta | None = None
    first_token_timeout: timedelta | None = None
    retries: int = 2
    context_window: int | None = None
    observed: bool = False

    def __post_init__(self) -> None:
        if self.base_url is not None:
            check_address("model_base_url", self.base_url)
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise InvalidSetting("model_timeout", "must be greater than zero")

    def limit(self, *, local: bool) -> timedelta | None:
        """How long a whole answer may take."""
        return self.timeout or (None if local else TIMEOUT)

    def first_token_limit(self, *, local: bool) -> timedelta | None:
        """How long an answer may take to begin."""
        first = self.first_token_timeout
        if first is None:
            first = timedelta(0) if local else FIRST_TOKEN
        return first or None


def check_address(setting: str, url: str) -> str:
    """Return the address of a server.

    Raises:
        InvalidSetting: it is none; the error names the setting and not the address, which may hold a password.
    """
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise InvalidSetting(setting, "is not an address; write it as http://host:8000/v1 or https://host/v1")
    return url


@asynccontextmanager
async def open_model(
    names: str = OFFLINE,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: timedelta | None = None,
    first_token_timeout: timedelta | None = None,
    slots: ModelSlots | None = None,
    given: Mapping[str, GivenModel] = _NOTHING_GIVEN,
    home: str | None = None,
    calls: ModelCallLog | None = None,
    context_windows: Mapping[str, int] = MappingProxyType({}),
    telemetry: Telemetry | None = None,
) -> AsyncIterator[ChatModel]:
    """Open a model, or with commas a chain of them, and close its connections at the end.

    Names in `given` are models that a program hands over; what they are connected to stays its own. Address and key are
    for the provider `home`, or for the first one that is named; others find theirs in the variables of their own.
    What becomes of the calls is counted in `calls`, except for the offline model, which does not fail. With `telemetry`
    each call is a span. Models that are opened with the same `slots` share those of their provider. `context_windows`
    are those of models by name, where they are not known or to be kept smaller.

    Raises:
        InvalidSetting: a name that cannot be opened, and what to install or to set. No model is called here, so a
            wrong key shows with the first question.
    """
    wanted = [names] if names in given else model_names(names)
    home = provider_of(names, given) if home is None else home
    access = ModelConnection(
        base_url=base_url,
        api_key=api_key,
        timeout=timeout,
        first_token_timeout=first_token_timeout,
        observed=telemetry is not None,
    )
    log = ModelCallLog() if calls is None else calls
    slots = ModelSlots() if slots is None else slots
    async with AsyncExitStack() as stack:
        elsewhere = replace(access, base_url=None, api_key=None, of_settings=False)
        models: list[ChatModel] = []
        for place, name in enumerate(wanted):
            own = access if _provider_name(name) == home else elsewhere
            # With another model behind it, trying the same one again only keeps the user waiting.
            last = place == len(wanted) - 1
            own = replace(own, retries=own.retries if last else 0, context_window=context_windows.get(name))
            if name in given:
                models.append(_guard(slots, name, _wrap_given(name, given[name], own, log), telemetry))
            elif name == OFFLINE:
                models.append(_observe(OfflineModel(stand_in=place > 0), telemetry))
            else:
                opened = await stack.enter_async_context(_open_provider_model(name, own, log))
                models.append(_guard(slots, name, opened, telemetry))
        yield models[0] if len(models) == 1 else FallbackChain(models)


def _guard(slots: ModelSlots, name: str, model: ChatModel, telemetry: Telemetry | None) -> ChatModel:
    """The model behind the slots of its provider; what a program hands over may have no address."""
    address: str = getattr(model, "address", name)
    return slots.guard(_observe(model, telemetry), address, local=getattr(model, "local", False))


def _observe(model: ChatModel, telemetry: Telemetry | None) -> ChatModel:
    return model if telemetry is None else telemetry.observe(model)


def model_names(names: str) -> list[str]:
    """The names of a chain, in order.

    Raises:
        InvalidSetting: there is none, one twice, or one behind the offline model, which always answers.
    """
    wanted = [name.strip() for name in names.split(",")]
    if not all(wanted):
        raise InvalidSetting("model", "names no model; offline needs nothing, openai:… and the like need a key")
    if len(set(wanted)) < len(wanted):
        raise InvalidSetting("model", "names a model twice")
    if OFFLINE in wanted[:-1]:
        raise InvalidSetting("model", "names a model behind offline, which always answers")
    return wanted


def provider_of(names: str, given: Mapping[str, GivenModel] = _NOTHING_GIVEN) -> str:
    """The first provider that a chain names: what is handed over, or offline, needs none."""
    wanted = [] if names in given else model_names(names)
    return next((_provider_name(name) for name in wanted if name not in given and name != OFFLINE), OFFLINE)


def _provider_name(name: str) -> str:
    return name.split(":", 1)[0] if ":" in name else ""


def _wrap_given(name: str, model: GivenModel, access: ModelConnection, log: ModelCallLog) -> ChatModel:
    """Adapt a model that a program handed over to the `ChatModel` port."""
    if callable(getattr(model, "stream_answer", None)) and isinstance(getattr(model, "name", None), str):
        given = cast(ChatModel, model)
        facts = facts_of(given)
        if access.context_window is not None:
            facts = replace(facts, context_window=access.context_window)
        return UserModel(given, access.timeout or TIMEOUT, log.of(given.name), facts)
    try:
        ours = import_module("tenuto.llm.pydantic_ai").wrap_pydantic_ai_model(model, access, log)
    except ImportError:
        ours = None
    if ours is None:
        kind = type(model).__name__
        raise InvalidSetting("models", f"{name} must be a ChatModel or a Pydantic AI model, not {kind}")
    return cast(ChatModel, ours)


def _open_provider_model(
    name: str, access: ModelConnection, log: ModelCallLog
) -> AbstractAsyncContextManager[ChatModel]:
    try:
        opening = import_module("tenuto.llm.pydantic_ai").open_pydantic_ai_model
    except ImportError as error:
        raise PackageMissing("model", name, extra="models") from error
    return cast(AbstractAsyncContextManager[ChatModel], opening(name, access, log))


class MissingModel:
    """A provider's model whose package is not installed: it has a name, and no answers."""

    def __init__(self, name: str, install: str) -> None:
        self.name = name
        self._install = install

    def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Refuse every request."""
        raise ExtraMissing(f"model {self.name}", install=self._install)


class UserModel:
    """A `ChatModel` of a program, with a time limit for its first event and its errors as `ModelFailed`."""

    def __init__(
        self, model: ChatModel, timeout: timedelta, calls: ModelCalls | None = None, facts: ModelFacts = NOTHING_KNOWN
    ) -> None:
        self._model = model
        self.facts = facts
        self._timeout = timeout
        self._calls = ModelCalls(model.name) if calls is None else calls

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._model.name

    @property
    def chain_length(self) -> int:
        """How many models it may ask one after the other."""
        links: int = getattr(self._model, "chain_length", 0)
        return links

    def refused_parameters(self, parameters: ModelParameters) -> tuple[str, ...]:
        """The names of those that it does not take, where it says so."""
        return refused_parameters(self._model, parameters)

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Answer as the port says, and turn each error into a `TenutoError`."""
        with self._calls.call(self._timeout):
            try:
                events = self._model.stream_answer(request, tools)
                # The port promises an iterator only; a generator must be closed at once.
                closing: AbstractAsyncContextManager[object] = nullcontext()
                if hasattr(events, "aclose"):
                    closing = aclosing(cast(AsyncGenerator[ModelEvent, None], events))
                async with closing:
                    # Once the answer has begun, the caller applies the timeout.
                    async with asyncio.timeout((self._timeout * max(1, self.chain_length)).total_seconds()):
                        first = await anext(events, None)
                    if first is not None:
                        yield first
                    async for event in events:
                        yield event
            except TenutoError:
                raise
            except TimeoutError:
                raise ModelTimeout(self.name) from None
            except Exception as error:
                # Only its type: the message of a foreign exception may quote user text.
                _log.warning("model %s failed: %s", self.name, type(error).__name__)
                reason = FailureReason.UNREACHABLE if isinstance(error, ConnectionError) else None
                raise ModelFailed(self.name, f"failed ({type(error).__name__})", reason) from None
