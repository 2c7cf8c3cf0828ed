"""The running turns of a process; those of other processes are found through the store (`shared_turns`)."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, Self

from tenuto.background import run_in_background
from tenuto.chat.live_turn import MANY_BYTES, LiveTurn
from tenuto.chat.request import ChatRequest, Reply
from tenuto.chat.service import Chat
from tenuto.chat.shared_turns import SharedTurns
from tenuto.errors import LimitReached, ServerStopping, TurnInterrupted
from tenuto.model import Scope
from tenuto.model.scope import owner_key, session_key
from tenuto.sessions import Sessions

# Seconds that the events of a turn stay readable after its end, of how many turns, and their bytes in all.
KEPT_FOR: Final = 60.0
_MOST_KEPT: Final = 256
_MOST_BYTES: Final = MANY_BYTES
# Turns of one owner that run or wait at the same time.
_MOST_RUNNING: Final = 256
# Seconds that turns get to end when the server stops; connections have had theirs by then.
_GRACE: Final = 5.0


class LiveTurns:
    """The running turns of a process. Leaving its context ends them. `on_start` is called when one can be joined.

    With `shared`, those of other processes are found as well; its context is the outer one.
    """

    def __init__(
        self,
        chat: Chat,
        sessions: Sessions,
        on_start: Callable[[LiveTurn], None] = lambda _: None,
        shared: SharedTurns | None = None,
    ) -> None:
        self._chat = chat
        self._shared = shared
        self._on_start = on_start
        self._sessions = sessions
        # Seconds for running turns at the end; `None` is a few.
        self.grace: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._keyed: dict[tuple[Scope, str], LiveTurn] = {}
        self._by_session: dict[bytes, LiveTurn] = {}
        self._running: Counter[bytes] = Counter()
        self._leaves = False
        # When each may go, and its size.
        self._ended: OrderedDict[LiveTurn, tuple[float, int]] = OrderedDict()
        self._kept_bytes = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._follow = shared.find_busy if shared is not None else None

    @property
    def running(self) -> int:
        """How many turns run."""
        return len(self._tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give running turns a few seconds to end, then cancel them: their messages stay, and their keys resume."""
        if self._tasks and not self._leaves:
            await asyncio.wait(self._tasks, timeout=_GRACE if self.grace is None else self.grace)
        self.leave()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._sweep is not None:
            self._sweep.cancel()

    def leave(self) -> None:
        """End all turns, here or as they are followed here, and tell their readers; the server stops."""
        self._leaves = True
        for task in self._tasks:
            task.cancel()
        if self._shared is not None:
            self._shared.leave()

    def start(self, scope: Scope, request: ChatRequest) -> LiveTurn:
        """Run a turn; the same request under the same key joins its running turn instead.

        Raises:
            ServerStopping: turns have been ended.
            LimitReached: too many turns of this owner run.
        """
        if self._leaves:
            raise ServerStopping
        key, owner = request.idempotency_key, owner_key(scope)
        running = self._keyed.get((scope, key)) if key is not None else None
        if running is not None and running.is_running(request):
            return running
        if self._running[owner] >= _MOST_RUNNING:
            raise LimitReached(f"{_MOST_RUNNING} turns are already running")
        self._running[owner] += 1
        turn = LiveTurn(scope, request)
        task = run_in_background(turn.run(self._chat, self._register, self._follow), "turn")
        self._tasks.add(task)
        if key is not None:
            self._keyed[scope, key] = turn
        task.add_done_callback(lambda _: self._keep_ended(turn, task))
        return turn

    async def take_turn(self, scope: Scope, request: ChatRequest) -> Reply:
        """Answer, whole; a caller that leaves does not end the turn.

        Raises:
            TenutoError: as in `Chat.take_turn`.
        """
        return await self.start(scope, request).reply()

    async def find(self, scope: Scope, session_id: str, turn_id: str | None = None) -> LiveTurn | None:
        """The turn that runs in a session, in any process, or the last one of this process if that ended lately; with a
        `turn_id` not one of another process that has another id.

        Raises:
            SessionNotFound: there is no such session for this caller.
            TurnUnreachable: another process runs it, and does not answer.
        """
        session = await self._sessions.get(scope, session_id)
        turn = self._by_session.get(session_key(scope, session.id))
        # The id may belong to another session by now; a turn whose process went may be answered elsewhere.
        if turn is not None and (
            turn.started is None
            or turn.started.incarnation != session.incarnation
            or isinstance(turn.error, TurnInterrupted)
        ):
            turn = None
        if self._shared is not None and (turn is None or turn.ended):
            turn = await self._shared.find(scope, session, turn_id) or turn
        return turn

    def _register(self, turn: LiveTurn) -> None:
        assert turn.started is not None
        if turn.started.incarnation:
            self._by_session[session_key(turn.scope, turn.started.session_id)] = turn
            if self._shared is not None and turn.is_own:
                self._shared.offer(turn)
        self._on_start(turn)

    def _keep_ended(self, turn: LiveTurn, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._shared is not None:
            self._shared.end(turn)
        owner, size = owner_key(turn.scope), turn.kept_bytes
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        if turn.key is not None and self._keyed.get((turn.scope, turn.key)) is turn:
            del self._keyed[turn.scope, turn.key]
        self._ended[turn] = asyncio.get_running_loop().time() + KEPT_FOR, size
        self._kept_bytes += size
        self._drop_ended()

    def _drop_ended(self) -> None:
        """Drop the turns whose time is over or that are too many, and come back for the next."""
        loop = asyncio.get_running_loop()
        while self._ended:
            turn, (until, size) = next(iter(self._ended.items()))
            few = len(self._ended) <= _MOST_KEPT and self._kept_bytes <= _MOST_BYTES
            if until > loop.time() and few:
                break
            del self._ended[turn]
            self._kept_bytes -= size
            if turn.started is not None:
                key = session_key(turn.scope, turn.started.session_id)
                if self._by_session.get(key) is turn:
                    del self._by_session[key]
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = loop.call_at(next(iter(self._ended.values()))[0], self._drop_ended) if self._ended else None
