"""Turns of programs that call their own model: the same budgets, windows and upkeep as turns of assistants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from tenuto.errors import SessionNotFound, Unavailable
from tenuto.lazy_imports import lazy_module
from tenuto.model import AppendResult, Draft, FinishTurn, OpenTurn, Page, Role, Scope, Session, TurnState
from tenuto.model.analytics import UsageCounts
from tenuto.model.generation import Summary, TurnSnapshot
from tenuto.model.message import is_summary
from tenuto.model.policy import MOST_LOADED, Preset
from tenuto.model.prompt import Language, PromptPolicy
from tenuto.model.scope import session_key
from tenuto.model.turn import MAX_WINDOW
from tenuto.model.values import check_int, check_type
from tenuto.ports import Clock
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import Sessions, TurnRequest
from tenuto.sessions.lease import release_on_error
from tenuto.sessions.requests import PromptReach
from tenuto.sessions.usage import Spending
from tenuto.upkeep import Upkeep
from tenuto.upkeep.jobs import SPARE, SmallModel, safely

if TYPE_CHECKING:
    from tenuto.context import compression, conversation
    from tenuto.context import tokens as token_counts
    from tenuto.upkeep import compressor
else:
    compression = lazy_module("tenuto.context.compression")
    conversation = lazy_module("tenuto.context.conversation")
    token_counts = lazy_module("tenuto.context.tokens")
    compressor = lazy_module("tenuto.upkeep.compressor")

# The tokens of a character at most.
_MOST_TOKENS: Final = 4
# A conversation with more characters that were never counted is fitted in a thread.
_FITTED_AT_ONCE: Final = 64 * 1024
# Whose usage it is in the ledger, beside the assistants.
_CALLER: Final = "own model"


class CallerTurns:
    """Begins and finishes turns whose model is the caller's.

    `small` makes summaries, if there is such a model. Context and tokenizer are loaded with the first window that is to
    be fitted, so that a program that only stores starts fast.
    """

    def __init__(
        self,
        *,
        sessions: Sessions,
        policies: Preset,
        prompt: PromptPolicy,
        model: str,
        upkeep: Upkeep,
        spending: Spending,
        redaction: UpkeepRedaction,
        clock: Clock,
        small_model: SmallModel | None,
    ) -> None:
        self._sessions = sessions
        self._policies = policies
        self._prompt = prompt
        self._model = model
        self._upkeep = upkeep
        self._spending = spending
        self._redaction = redaction
        self._clock = clock
        self._small_model = small_model
        self._counter: token_counts.TokenCounter | None = None
        self._reach = PromptReach()

    def count(self, draft: Draft) -> Draft:
        """The message with its tokens, once a window had to be fitted; until then the tokenizer is not loaded."""
        return draft if self._counter is None else self._counter.with_count(draft)

    async def begin(self, scope: Scope, request: TurnRequest, window: int | None) -> OpenTurn:
        """Begin a turn, with the window that its model should see.

        Raises:
            BudgetExhausted: the session or the tenant has spent its budget; without a key nothing was stored.
            InstructionsTooLong: the prompt has no room for the system messages of the request.
        """
        await self._check_system_messages(request.user_messages)
        load_limit = self._policies.context.loaded_messages
        most = load_limit if window is None else window
        check_int(most, 0, MAX_WINDOW, "the window")
        if self._spending.active and request.idempotency_key is None:
            # With a key the reply may be stored already, and a replay costs nothing.
            await self._spending.check(scope, lambda: self._load_head(scope, request.session_id))
        # A summary may lie further back than the window reaches.
        reach = self._reach.guess(scope, request.session_id) if window is None else 0
        turn = await self._sessions.begin(scope, replace(request, window=max(most, load_limit, reach) if most else 0))
        if turn.state is TurnState.FINISHED:
            return turn
        preparing = self._prepare(turn, most, limited=window is not None)
        return await release_on_error(self._sessions.finish, turn, preparing)

    async def _check_system_messages(self, messages: Sequence[Draft]) -> None:
        system = [message for message in messages if message.role is Role.SYSTEM]
        if sum(map(_size, system)) * _MOST_TOKENS < self._prompt.budget_tokens - self._prompt.reply_tokens:
            return  # They fit without being counted, which would load the tokenizer.
        await self._load_tokenizer()
        counter = token_counts.counter_for(self._model)
        await asyncio.to_thread(conversation.check_system_messages, system, self._prompt, counter)

    async def finish(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        """Store the reply, count its usage, and have the conversation summarised when that is due.

        Messages that the reply would evict under the stored cap are covered by a summary first.
        """
        check_type(turn, OpenTurn, "the turn")
        if turn.number > 1 and self._compresses and not request.abandoned:
            await self._secure(turn, len(request.reply))
        result = await self._sessions.finish(turn, request)
        if result.duplicate or request.abandoned:
            return result
        if request.usage.tokens or request.usage.cost_nanos:
            # Callers report one total, so all of it stands with what models read.
            usage = UsageCounts(turns=1, input_tokens=request.usage.tokens, cost_nanos=request.usage.cost_nanos)
            await self._spending.add(turn.scope, usage, _CALLER)
        # The newest turn always stays as it is.
        if result.session.turns > 1 and self._compresses and not result.journaled and self._may_be_due(turn, result):
            # As of turns of assistants without a persona of their own.
            subject = (session_key(turn.scope, result.session.id), None)
            self._upkeep.start("summary", subject, lambda: self._compress(turn.scope, result.session))
        return result

    # What the caller's model sees

    async def _prepare(self, turn: OpenTurn, most: int, *, limited: bool) -> OpenTurn:
        if self._spending.active:
            # A turn that ran meanwhile may have spent the rest.
            self._spending.budgets.check_session(turn.session)
            await self._spending.check_tenant(turn.scope)
        if self._is_short_and_new(turn):
            return turn
        await self._load_tokenizer()
        if limited or turn.journaled or not most:
            return await self._fit(turn, most)
        turn = await self._with_older(turn)
        fitted = await self._fit(turn, len(turn.window))
        if self._compresses and self._fills_by_tokens and _leaves_out(turn, fitted):
            # A summary that is made meanwhile, or messages that were appended at once: what has no room is covered now.
            await self._compress(turn.scope, turn.session, at_once=True)
            query = Page(limit=max(most, self._policies.context.loaded_messages))
            page = await self._sessions.messages(turn.scope, turn.session.id, query)
            turn = replace(turn, window=page.messages)
            fitted = await self._fit(turn, len(turn.window))
        self._reach.note(turn.scope, turn.session.id, len(fitted.window))
        return fitted

    def _is_short_and_new(self, turn: OpenTurn) -> bool:
        """Whether nothing is there to fit."""
        if len(turn.window) > len(turn.user_messages):
            return False
        size = sum(map(_size, turn.window))
        return size * _MOST_TOKENS < self._prompt.budget_tokens - self._prompt.reply_tokens

    @property
    def _fills_by_tokens(self) -> bool:
        """Whether tokens alone decide what the window has room for."""
        context = self._policies.context
        messages = context.window_messages or MOST_LOADED
        return messages >= MOST_LOADED and context.window_turns is None and context.window_characters is None

    async def _with_older(self, turn: OpenTurn) -> OpenTurn:
        """The turn with all messages that no summary covers, if the loaded ones leave room for them."""
        window, start = turn.window, turn.context_start
        if not window or turn.session.messages <= len(window) or not self._fills_by_tokens:
            return turn
        summary = compression.find_summary(window, start)
        begins = max(summary.through + 1 if summary is not None else 1, start)
        if window[0].seq <= begins or sum([message.tokens for message in window]) >= self._prompt.budget_tokens:
            return turn
        # The newest ones, since these are cached: the next turn may be begun in an outage, and asks for as many.
        page = await self._sessions.messages(turn.scope, turn.session.id, Page(limit=MOST_LOADED))
        return replace(turn, window=(*(one for one in page.messages if one.seq < window[0].seq), *window))

    async def _fit(self, turn: OpenTurn, most: int) -> OpenTurn:
        if sum([_size(message) for message in turn.window if not message.tokens]) < _FITTED_AT_ONCE:
            return self._fitter(turn, most=most)
        return await asyncio.to_thread(self._fitter, turn, most=most)

    async def _load_tokenizer(self) -> None:
        """Load context and tokenizer in a thread, once: it takes a fifth of a second, in which other turns go on."""
        if self._counter is None:
            await asyncio.to_thread(self._load_fitter)

    def _load_fitter(self) -> None:
        _ = compressor.Compressor
        token_counts.counter_for(self._model).preload()
        _ = self._fitter

    @cached_property
    def _fitter(self) -> Callable[..., OpenTurn]:
        """`fit_window` with the settings' policies."""
        self._counter = counter = token_counts.counter_for(self._model)
        return partial(conversation.fit_window, policy=self._prompt, context=self._policies.context, counter=counter)

    async def _load_head(self, scope: Scope, session_id: str | None) -> Session | None:
        if session_id is None:
            return None
        try:
            return await self._sessions.get(scope, session_id)
        except (SessionNotFound, Unavailable):
            # The begin or the end of the turn decides what that means.
            return None

    # What follows a turn

    async def _secure(self, turn: OpenTurn, adding: int) -> None:
        """Cover what the reply would evict, without a model; an outage of the store is logged and not waited for."""
        # A turn restored from its token has no head.
        session = turn.session if turn.session.version else await self._load_head(turn.scope, turn.session.id)
        if session is None or session.incarnation != turn.session.incarnation:
            return  # Finishing raises the fitting error.
        if compression.would_evict_uncovered(session, turn.summarized_through, adding + SPARE):
            await safely("summary", lambda: self._compress(turn.scope, session, adding=adding, at_once=True))

    def _may_be_due(self, turn: OpenTurn, result: AppendResult) -> bool:
        """Judged by the turn's window, if that holds all that no summary covers, before the stored session is read."""
        begins = max(turn.summarized_through + 1, turn.context_start)
        first = turn.window[0].seq if turn.window else 0
        if not first or first > begins or turn.cut or self._counter is None:
            return True
        previous = Summary(text=turn.summary, through=turn.summarized_through, through_id="") if turn.summary else None
        log, context = (*turn.window, *result.messages), self._policies.context
        counter = self._compressor.counter
        return (
            compression.compression_due(
                result.session, log, counter, self._prompt, context, previous=previous, overhead=conversation.MARGIN
            )
            is not None
        )

    async def _compress(self, scope: Scope, session: Session, *, adding: int = 0, at_once: bool = False) -> None:
        """Summarise what is due; `at_once` without a model."""
        turn = TurnSnapshot(
            scope=scope,
            session=session,
            assistant="",
            language=Language.ENGLISH,
            policies=self._policies,
            prompt=self._prompt,
            question="",
            # The window leaves so much to the caller's own prompt, and what it has no room for must be covered.
            reserved_tokens=conversation.MARGIN,
        )
        await self._compressor.compress(turn, adding=adding, at_once=at_once)

    @property
    def _compresses(self) -> bool:
        context = self._policies.context
        return context.compress_at is not None or context.compress_over is not None

    @cached_property
    def _compressor(self) -> compressor.Compressor:

        return compressor.Compressor(
            sessions=self._sessions,
            model=self._small_model,
            redaction=self._redaction,
            counter=token_counts.TokenCounter(),
            clock=self._clock,
        )


def _size(message: Draft) -> int:
    """The characters of a message at most, calls, results and parts of other kinds included."""
    return len(msgspec.json.encode(message.parts))


def _leaves_out(turn: OpenTurn, fitted: OpenTurn) -> bool:
    """Whether messages that no summary covers have no place in the window."""
    if len(fitted.window) == len(turn.window):
        return False
    begins, kept = max(fitted.summarized_through + 1, turn.context_start), {one.seq for one in fitted.window}
    return any(one.seq >= begins and one.seq not in kept and not is_summary(one) for one in turn.window)
