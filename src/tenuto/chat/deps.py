"""What a turn depends on: services, ports and time limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeAlias

from tenuto.assistants import AssistantRegistry
from tenuto.context import TokenCounter, fit_prompt
from tenuto.llm.calls import ModelCallLog
from tenuto.llm.choice import ModelChoice
from tenuto.lru_cache import LruCache
from tenuto.model import Content
from tenuto.model.prompt import MAX_PROMPT_TOKENS, PromptPolicy
from tenuto.model.turn import Trace
from tenuto.model.values import Value
from tenuto.ports import ChatModel, Clock, Telemetry, TraceStore, TurnFollowUp, facts_of
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.recall.embedding import CachedEmbedder
from tenuto.recall.service import Memories
from tenuto.sessions import Sessions
from tenuto.sessions.profiles import Profiles
from tenuto.sessions.requests import PromptReach
from tenuto.sessions.usage import Spending

# The bytes of attachments, each by its session's incarnation and its id.
ContentCache: TypeAlias = LruCache[tuple[str, str], Content]
_CACHED_CONTENTS: Final = 1_000
_CACHED_BYTES: Final = 32 * 1024 * 1024


def make_content_cache() -> ContentCache:
    """Holds what prompts showed last: a picture in the history is sent with every turn."""
    return LruCache(_CACHED_CONTENTS, most_weight=_CACHED_BYTES, weigh=lambda content: len(content.data))


Models: TypeAlias = Callable[[str | None], ChatModel]
Observer: TypeAlias = Callable[[Trace], None]


class ChatLimits(Value, frozen=True, kw_only=True):
    """How long a turn's parts may take, and how often a model may call for tools before it must answer.

    A prompt that follows its model's context window has at most `prompt_tokens`, the reply's share included.
    """

    model_timeout: timedelta = timedelta(seconds=120)
    tool_timeout: timedelta = timedelta(seconds=30)
    tool_rounds: int = 6
    prompt_tokens: int = MAX_PROMPT_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDeps:
    """Everything a turn needs, built once."""

    sessions: Sessions
    traces: TraceStore
    assistants: AssistantRegistry
    models: Models
    model_choice: ModelChoice
    spending: Spending
    clock: Clock
    follow_up: TurnFollowUp
    redaction: TurnRedaction
    embedder: CachedEmbedder | None = None
    memories: Memories | None = None
    profiles: Profiles | None = None
    titles_by_model: bool = False
    shows_reasoning: bool = True
    unknown_models_get_default: bool = False
    limits: ChatLimits = field(default_factory=ChatLimits)
    telemetry: Telemetry | None = None
    calls: ModelCallLog = field(default_factory=ModelCallLog)
    observers: list[Observer] = field(default_factory=list)
    counter: TokenCounter = field(default_factory=TokenCounter)
    reach: PromptReach = field(default_factory=PromptReach)
    contents: ContentCache = field(default_factory=make_content_cache)

    def prompt_for(self, policy: PromptPolicy, model: ChatModel) -> PromptPolicy:
        """The policy with a budget that the model has room for.

        Raises:
            InvalidSetting: the reply's share leaves no room for a prompt.
        """
        return fit_prompt(policy, facts_of(model).context_window, self.limits.prompt_tokens)
