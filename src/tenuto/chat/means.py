"""What taking turns works with: the rooms and ports that meet in a turn, and how long each of its parts may take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, TypeAlias

from tenuto.assistants import Assistants
from tenuto.chat.spending import Spending
from tenuto.chat.timing import no_span
from tenuto.model import Scope, Session
from tenuto.model.privacy import Sink
from tenuto.model.prompt import Materials
from tenuto.model.trace import Trace
from tenuto.model.values import Json, Value
from tenuto.ports import Afterwards, ChatModel, Clock, Embedder, Span, TraceStore
from tenuto.sessions import Sessions

Models: TypeAlias = Callable[[str | None], ChatModel]
Observer: TypeAlias = Callable[[Trace], None]


class Screening(Protocol):
    """The privacy policy, as a turn meets it before anything is stored."""

    @property
    def degraded(self) -> bool:
        """Whether part of what finds private data does not answer."""
        ...

    async def admit(self, scope: Scope, text: str) -> None:
        """Refuse words that may be neither stored nor shown to a model.

        Raises:
            PrivateData: a policy blocks what is in them.
        """
        ...

    async def for_title(self, scope: Scope, text: str) -> str:
        """A text that a title may be made of."""
        ...

    def own_words(self, scope: Scope, text: str) -> str:
        """A text that somebody gave us for a prompt; what looks like a mark of ours in it shall open nothing."""
        ...

    async def recalled(self, session: Session, value: Json) -> Json:
        """A value of the session's own, with what its marks stand for."""
        ...

    async def for_prompt(self, scope: Scope, session: Session | None, materials: Materials) -> Materials | None:
        """What a prompt is made of, as a model may be shown it; `None` where it may be shown everything."""
        ...

    async def before_cut(
        self, scope: Scope, text: str, sinks: Iterable[Sink], shown: int | None = None
    ) -> tuple[str, Mapping[str, int]]:
        """A text that will be cut and then go to these sinks, and how much of what was taken out of it.

        Where at most `shown` characters of its ends will be left, the rest need not be looked through.
        """
        ...

    async def traced(self, scope: Scope, trace: Trace) -> Trace:
        """A trace that was not stored, as it might have been."""
        ...


class Unscreened:
    """Lets every word pass."""

    degraded = False

    async def admit(self, scope: Scope, text: str) -> None:
        """Everybody may say everything."""

    async def for_title(self, scope: Scope, text: str) -> str:
        """As it is."""
        return text

    def own_words(self, scope: Scope, text: str) -> str:
        """As it is."""
        return text

    async def recalled(self, session: Session, value: Json) -> Json:
        """As it is."""
        return value

    async def for_prompt(self, scope: Scope, session: Session | None, materials: Materials) -> Materials | None:
        """A model may be shown everything."""
        return None

    async def before_cut(
        self, scope: Scope, text: str, sinks: Iterable[Sink], shown: int | None = None
    ) -> tuple[str, Mapping[str, int]]:
        """As it is."""
        return text, {}

    async def traced(self, scope: Scope, trace: Trace) -> Trace:
        """As it is."""
        return trace


class ChatLimits(Value, frozen=True, kw_only=True):
    """How long a turn's parts may take, and how often a model may call for tools before it must answer."""

    model_timeout: timedelta = timedelta(seconds=120)
    tool_timeout: timedelta = timedelta(seconds=30)
    embedder_timeout: timedelta = timedelta(seconds=5)
    tool_rounds: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Everything a turn needs, put together once."""

    sessions: Sessions
    traces: TraceStore
    assistants: Assistants
    models: Models
    spending: Spending
    clock: Clock
    afterwards: Afterwards
    screen: Screening = field(default_factory=Unscreened)
    embedder: Embedder | None = None
    titles_by_model: bool = False
    limits: ChatLimits = field(default_factory=ChatLimits)
    span: Span = no_span
    observers: list[Observer] = field(default_factory=list)

    def tell(self, trace: Trace) -> None:
        """Tell the observers of a turn that ended."""
        for observer in self.observers:
            observer(trace)
