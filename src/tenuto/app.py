"""The wiring of all rooms, and the entry point of the library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tenuto import wiring
from tenuto.background import running
from tenuto.errors import Invalid, InvalidSetting
from tenuto.lazy_imports import lazy_module
from tenuto.model import AppendResult, Content, Draft, FinishTurn, OpenTurn, Role, Scope, Session, Usage, text_part
from tenuto.model.channel import ChannelPolicy
from tenuto.model.parameters import AnswerSchema
from tenuto.model.policy import Preset, RunPolicy
from tenuto.model.values import check_text
from tenuto.ports import Channel, Clock, Detector, TaskEngine, utc_now
from tenuto.privacy.compliance.compaction import Compactor
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import EventEmitter, Listener, Sessions, TurnRequest, fresh_id
from tenuto.sessions.usage import Spending, UsageLedger
from tenuto.settings import Settings, read_settings
from tenuto.tasks import Tasks
from tenuto.upkeep import LAST_WORK, ScheduledScan, SmallModel, Upkeep
from tenuto.wiring.caller_turns import CallerTurns
from tenuto.wiring.stores import Stores, open_stores

if TYPE_CHECKING:
    from tenuto.access import People
    from tenuto.assistants import Assistant
    from tenuto.chat import Chat, ChatRequest, Reply
    from tenuto.chat import request as chat_requests
    from tenuto.gateway.service import Gateway
    from tenuto.llm import GivenModel
    from tenuto.model.generation import ToolSpec
    from tenuto.model.values import JsonObject
    from tenuto.privacy.compliance.service import PrivacyService
    from tenuto.recall.service import Memories
    from tenuto.sessions import analytics
    from tenuto.tasks.agent_contexts import AgentContexts
    from tenuto.tasks.agents import Agents
    from tenuto.wiring.models import ModelChoice
else:
    chat_requests = lazy_module("tenuto.chat.request")
    analytics = lazy_module("tenuto.sessions.analytics")

_OFFLINE: Final = "offline"
_NO_MODELS: Final[Mapping[str, GivenModel]] = MappingProxyType({})


class Tenuto:
    """An open installation: its sessions, and the short way to a turn.

    `sessions` has everything; `begin`, `finish` and `scope` are for programs with their own model, `ask` for those that
    use an assistant.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        stores: Stores,
        sessions: Sessions,
        tasks: Tasks,
        events: EventEmitter,
        upkeep: Upkeep,
        ledger: UsageLedger,
        spending: Spending,
        compactor: Compactor,
        clock: Clock,
        stack: AsyncExitStack,
        models: Mapping[str, GivenModel],
        assistants: Sequence[Assistant],
    ) -> None:
        self.settings = settings
        self.stores = stores
        self.store = stores.front
        self.redactor = stores.redactor
        self.sessions = sessions
        self.tasks = tasks
        self.upkeep = upkeep
        self._ledger = ledger
        self._spending = spending
        self._events = events
        self._compactor = compactor
        self._clock = clock
        self._stack = stack
        self._models = models
        self._assistants = assistants
        self._chat_lock = asyncio.Lock()
        self._engine_lock = asyncio.Lock()
        self._chat: Chat | None = None
        self._memories: Memories | None = None
        self._small: SmallModel | None = None
        # A process may control tasks before it begins to work on them.
        self._engines: dict[bool, TaskEngine] = {}
        self._turns = CallerTurns(
            sessions=sessions,
            policies=self.policies,
            prompt=settings.own_prompt(),
            model=settings.model,
            upkeep=upkeep,
            spending=spending,
            redaction=upkeep.redaction,
            clock=clock,
            small_model=None if (settings.summarizer_model or settings.model) == _OFFLINE else self._ask_small,
        )
        self.scheduled_scan = self._schedule_scan(settings.privacy_scan_every)

    def scope(
        self,
        *,
        tenant: str = "local",
        site: str = "",
        user: str | None = None,
        channel: str | None = None,
        chat: str | None = None,
        thread: str | None = None,
        persona: str | None = None,
        visitor: bool = False,
    ) -> Scope:
        """The scope of a caller; the tenant is `local` unless named."""
        return Scope(
            tenant=tenant,
            site=site,
            user=user,
            channel=channel,
            chat=chat,
            thread=thread,
            persona=persona,
            visitor=visitor,
        )

    async def begin(
        self,
        scope: Scope,
        text: str,
        *,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        window: int | None = None,
    ) -> OpenTurn:
        """Store the user message, take the lease, and load the conversation for the model: `summary` and `window`.

        The window holds the newest whole turns within the token budget of the settings; the summary stands in for what
        it covers. `window` limits the messages further.
        """
        _check_scope(scope)
        words = self._turns.count(self.draft(text, role=Role.USER, speaker=scope.user))
        request = TurnRequest(user_messages=(words,), session_id=session_id, idempotency_key=idempotency_key)
        return await self.begin_turn(scope, request, window)

    async def begin_turn(self, scope: Scope, request: TurnRequest, window: int | None = None) -> OpenTurn:
        """As `begin`, with messages of any kind. The window is the argument, not the request's.

        Raises:
            BudgetExhausted: the session or the tenant has spent its budget.
        """
        return await self._turns.begin(scope, request, window)

    async def finish(
        self, turn: OpenTurn, reply: str | Sequence[Draft] = (), *, tokens: int = 0, cost_nanos: int = 0
    ) -> Session:
        """Store the reply, add its usage, and release the lease. A summary that is due is made in the background."""
        if not isinstance(reply, str | list | tuple):
            raise Invalid(f"the reply must be a text (str) or a list of Draft, not {type(reply).__name__}")
        drafts = (self._turns.count(self.draft(reply)),) if isinstance(reply, str) else tuple(reply)
        request = FinishTurn(reply=drafts, usage=Usage(tokens=tokens, cost_nanos=cost_nanos))
        return (await self.finish_turn(turn, request)).session

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        """As `finish`, with messages of any kind and changes to the session."""
        return await self._turns.finish(turn, request)

    async def abandon(self, turn: OpenTurn) -> Session:
        """Release the lease without a reply; the user message stays stored, and the same key resumes."""
        return (await self.sessions.finish(turn, FinishTurn(abandoned=True))).session

    async def ask(
        self,
        scope: Scope,
        text: str | ChatRequest,
        *,
        session_id: str | None = None,
        assistant: str | None = None,
        persona: str | None = None,
        language: str | None = None,
        idempotency_key: str | None = None,
        profile: JsonObject | None = None,
        edit: int | None = None,
        attachments: Sequence[Content] = (),
        messages: tuple[Draft, ...] = (),
        tools: tuple[ToolSpec, ...] = (),
        tool_choice: str | None = None,
    ) -> Reply:
        """Send a message to an assistant and get its reply.

        The language may be given by its code, `"en"` or `"zh"`; `attachments` are shown beside the text.
        All that a turn can be asked goes into a `ChatRequest`, which is then given in place of the text, without
        further arguments.
        """
        _check_scope(scope)
        request = chat_requests.request_from(
            text,
            session_id=session_id,
            assistant=assistant,
            persona=persona,
            language=language,
            idempotency_key=idempotency_key,
            profile=profile,
            edit=edit,
            attachments=attachments,
            messages=messages,
            tools=tools,
            tool_choice=tool_choice,
        )
        return await (await self.chat()).take_turn(scope, request)

    def draft(self, text: str, *, role: Role = Role.ASSISTANT, speaker: str | None = None) -> Draft:
        """A message of plain text."""
        check_text(text, "the message")
        return Draft(id=fresh_id(), role=role, sent_at=self._clock(), parts=(text_part(text),), speaker=speaker)

    def add_listener(self, listener: Listener) -> None:
        """Call this listener for every session event from now on."""
        self._events.add_listener(listener)

    @cached_property
    def policies(self) -> Preset:
        """The policies of the settings."""
        return self.settings.policies()

    async def chat(self) -> Chat:
        """Turns with assistants. Loaded on first use: programs that only store sessions do not need it.

        Raises:
            InvalidSetting: the model, an assistant or a budget of the settings is not valid.
        """
        memories = await self.memories()
        async with self._chat_lock:
            if self._chat is None:
                self._chat = await self._stack.enter_async_context(
                    wiring.open_chat(
                        self.settings,
                        store=self.store,
                        redactor=self.redactor,
                        sessions=self.sessions,
                        memories=memories,
                        owners_of=self.people.scopes_of,
                        upkeep=self.upkeep,
                        spending=self._spending,
                        clock=self._clock,
                        models=self._models,
                        assistants=self._assistants,
                        engine=self.engine,
                    )
                )
        return self._chat

    async def memories(self) -> Memories:
        """What is remembered of users and chats beyond their sessions. Loaded on first use.

        Raises:
            InvalidSetting: the embedder of the settings cannot be opened.
        """
        async with self._chat_lock:
            if self._memories is None:
                self._memories = await self._stack.enter_async_context(
                    wiring.open_memories(
                        self.settings,
                        store=self.store,
                        redactor=self.redactor,
                        clock=self._clock,
                        models=self._models,
                        owners_of=self.people.scopes_of,
                        open_captures=self.chat,
                    )
                )
        return self._memories

    async def engine(self, *, worker: bool = True, concurrency: int | None = None) -> TaskEngine:
        """What runs the plans of tasks, with the agents that are registered. Loaded on first use.

        This process works on plans whose agents every process has (shipped ones, assistants), and, if it has agents of
        its own, on all others; at most `concurrency` agents at once. With `worker=False` it only submits and controls
        tasks that others run. Tasks in memory have no other process.

        Raises:
            InvalidSetting: the extra `tasks` is not installed, or the database of the settings does not fit.
        """
        async with self._engine_lock:
            await asyncio.to_thread(lambda: self.agents)  # Reads files.
            works = worker or self.settings.store.startswith("memory:")
            engine = self._engines.get(True) or (None if works else self._engines.get(False))
            if engine is None:
                engine = self._engines[works] = await self._stack.enter_async_context(
                    wiring.open_engine(
                        self.settings,
                        tasks=self.tasks,
                        contexts=self.agent_contexts,
                        agents=self.agents,
                        clock=self._clock,
                        worker=works,
                        redactor=self.redactor,
                        policy=RunPolicy() if concurrency is None else RunPolicy(agents_at_once=concurrency),
                    )
                )
        return engine

    @property
    def works_on_tasks(self) -> bool:
        """Whether this process runs plans."""
        return True in self._engines

    async def gateway(self, channel: Channel, policy: ChannelPolicy) -> Gateway:
        """What answers the messages of an app on a chat platform, as long as its `running` is open.

        Raises:
            InvalidSetting: there is no such assistant as the policy names.
        """
        return wiring.make_gateway(
            self.settings,
            channel,
            policy,
            chat=await self.chat(),
            sessions=self.sessions,
            state=self.store.state,
            redactor=self.redactor,
            people=self.people,
            clock=self._clock,
        )

    @cached_property
    def people(self) -> People:
        """Which users of a site are one person: `link` and `unlink` them, or let them do it with a code."""
        return wiring.make_people(self.settings, self.store.state, self._clock)

    @cached_property
    def agents(self) -> Agents:
        """The agents of the shipped assistants, and those of the settings' folder, which take precedence.

        A program may register others before it opens the engine.

        Raises:
            InvalidSetting: a file of the folder cannot be loaded.
        """
        return wiring.load_known_agents(self.settings, self.chat)

    @cached_property
    def agent_contexts(self) -> AgentContexts:
        """What agents see of tasks, for agents in other processes as well."""
        return wiring.make_agent_contexts(self.tasks, self.store, self.people.scopes_of)

    @cached_property
    def analytics(self) -> analytics.Analytics:
        """Usage and hot topics of a tenant's site."""
        return analytics.Analytics(ledger=self._ledger, sessions=self.store.sessions, clock=self._clock)

    @cached_property
    def privacy(self) -> PrivacyService:
        """Reveals pseudonyms, exports stored private data, and erases users."""
        return wiring.make_privacy_service(
            self.stores,
            sessions=self.sessions,
            tasks=self.tasks,
            people=self.people,
            compactor=self._compactor,
            clock=self._clock,
            open_engine=self._engine_with_runs,
            clear_caches=self._clear_caches,
        )

    def finish_by(self, moment: float) -> None:
        """Have closing wait for work no longer than until this moment of the event loop's clock."""
        self.upkeep.ends_at = self._ledger.ends_at = moment

    def _clear_caches(self) -> None:
        """Drop what this process holds of users' texts and pictures beside the store's own cache."""
        if self._memories is not None:
            self._memories.clear_cache()
        if self._chat is not None:
            self._chat.clear_caches()

    async def _ask_small(
        self, scope: Scope, instructions: str, text: str, tokens: int, schema: AnswerSchema | None = None
    ) -> str:
        """Ask the model for summaries, which the chat has if it is open; a program with its own model needs no chat."""
        async with self._chat_lock:
            small = self.upkeep.model or self._small
            if small is None:
                opening = wiring.open_small(self.settings, models=self._models, spending=self._spending)
                small = self._small = await self._stack.enter_async_context(opening)
                # Before this model closes: summaries that are under way need it.
                self._stack.push_async_callback(self.upkeep.drain, LAST_WORK)
        return await small(scope, instructions, text, tokens, schema)

    async def _engine_with_runs(self) -> TaskEngine | None:
        """The engine, unless no plan has ever run."""
        has_runs = bool(self._engines) or await self.tasks.has_runs()
        return await self.engine(worker=False) if has_runs else None

    def _schedule_scan(self, every: timedelta | None) -> ScheduledScan | None:
        if not every:
            return None
        scan, look = (lambda: self.privacy.scan_all()), min(every, self.settings.sweep_every)
        return ScheduledScan(scan=scan, state=self.store.state, clock=self._clock, every=every, look_every=look)


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    clock: Clock = utc_now,
    listeners: Sequence[Listener] = (),
    models: Mapping[str, GivenModel] = _NO_MODELS,
    assistants: Sequence[Assistant] = (),
    detector: Detector | None = None,
    run_upkeep: bool = True,
    read_only: bool = False,
) -> AsyncIterator[Tenuto]:
    """Open everything that the settings name, and close it in reverse order.

    `models` take precedence over providers' models of the same name; `assistants` are added to the built-in ones.
    A `detector` finds private data beside the rules, instead of the one that the settings name. With `read_only`, a
    file in a read-only folder can be opened too.

    Raises:
        InvalidSetting: a file or folder that the settings name is not there, or cannot be read.
    """
    _check_agents(settings)
    async with AsyncExitStack() as stack:
        stores = await open_stores(stack, settings, clock, read_only, detector)
        store, policies = stores.front, settings.policies()
        events = EventEmitter(clock=clock, listeners=listeners)
        sessions = Sessions(
            store=store.sessions, upkeep=store.upkeep, policy=policies.sessions, events=events, clock=clock
        )
        # The service checks each agent itself.
        state = stores.unprotected.state
        tasks = Tasks(state=state, sessions=store.sessions, policy=policies.tasks, clock=clock, new_id=fresh_id)
        compactor = Compactor(state=store.state, upkeep=store.upkeep, clock=clock)
        ledger = UsageLedger(state=store.state, clock=clock)
        stack.push_async_callback(ledger.close)
        upkeep = Upkeep(
            sessions=sessions,
            tasks=tasks,
            ledger=ledger,
            sweep_every=settings.sweep_every,
            clock=clock,
            redaction=UpkeepRedaction(stores.redactor),
            catch_up=compactor.catch_up,
        )
        app = Tenuto(
            settings=settings,
            stores=stores,
            sessions=sessions,
            tasks=tasks,
            events=events,
            upkeep=upkeep,
            ledger=ledger,
            spending=Spending(ledger=ledger, budgets=settings.budgets()),
            compactor=compactor,
            clock=clock,
            stack=stack,
            models=models,
            assistants=assistants,
        )
        # Before the stores close; with a chat, its own end has waited already.
        stack.push_async_callback(upkeep.drain, LAST_WORK)
        # Without upkeep, too: `tenuto chat` may run for hours.
        await stack.enter_async_context(running(ledger.run(), "usage ledger"))
        if run_upkeep:
            await stack.enter_async_context(running(upkeep.run(), "upkeep"))
            if app.scheduled_scan is not None:
                await stack.enter_async_context(running(app.scheduled_scan.run(), "scheduled scan"))
        yield app


@asynccontextmanager
async def open(  # noqa: A001 - the name people type: tenuto.open(...)
    store: str | None = None,
    *,
    clock: Clock = utc_now,
    listeners: Sequence[Listener] = (),
    models: Mapping[str, GivenModel] = _NO_MODELS,
    assistants: Sequence[Assistant] = (),
    detector: Detector | None = None,
    model: ModelChoice | None = None,
    summarizer_model: ModelChoice | None = None,
    **settings: Any,
) -> AsyncIterator[Tenuto]:
    """Open tenuto on a store: `sqlite:///chat.db`, `redis://…`, `postgresql://…`, `memory://`.

    `model` answers, and `summarizer_model` makes titles and summaries: a name, a model of Pydantic AI or your own, or
    several of them, each used when the one before it fails. A `detector` finds private data that the rules do not, such
    as names. Further settings go by name (`preset="goods_qa"`,
    `retention=timedelta(days=7)`); the environment supplies the rest.
    """
    models_by_name = dict(models)
    given = {"model": model, "summarizer_model": summarizer_model}
    named = {
        setting: wiring.register_model(setting, choice, models_by_name)
        for setting, choice in given.items()
        if choice is not None
    }
    chosen = read_settings(None, store=store, **named, **settings)
    async with open_app(
        chosen, clock=clock, listeners=listeners, models=models_by_name, assistants=assistants, detector=detector
    ) as app:
        yield app


def _check_agents(settings: Settings) -> None:
    """Check the folder here: its files are read by the engine, which a server opens beside its work."""
    if settings.agents is not None and not Path(settings.agents).is_dir():
        raise InvalidSetting("agents", f"there is no folder {settings.agents}")


def _check_scope(scope: object) -> None:
    """Refuse a user's name, or anything else, in place of a scope."""
    if not isinstance(scope, Scope):
        raise Invalid(f"scope must be a Scope, as scope(user=…) makes it, not {type(scope).__name__}")
