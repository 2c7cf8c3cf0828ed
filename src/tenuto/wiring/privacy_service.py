"""The wiring of the privacy service: what else is erased with a user's sessions, in the rooms that keep it.

Imported with the first use: signatures and ciphers take long to import, and are seldom needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tenuto.access import ApiKeys, KeyRole, People
from tenuto.gateway.inbox import erase_waiting
from tenuto.model import Scope
from tenuto.ports import Clock, TaskEngine
from tenuto.privacy.compliance.compaction import Compactor
from tenuto.privacy.compliance.erasure import KEYS_LEFT
from tenuto.privacy.compliance.service import PrivacyService
from tenuto.sessions import Sessions, fresh_id
from tenuto.tasks import Tasks
from tenuto.upkeep.memory_sweep import erase_chat_memories
from tenuto.wiring.stores import Stores


def make_privacy_service(
    stores: Stores,
    *,
    sessions: Sessions,
    tasks: Tasks,
    people: People,
    compactor: Compactor,
    clock: Clock,
    open_engine: Callable[[], Awaitable[TaskEngine | None]],
    clear_caches: Callable[[], None],
) -> PrivacyService:
    """What reveals, exports and erases private data; `open_engine` gives `None` where no plan has ever run."""
    state = stores.front.state

    async def end_keys(scope: Scope, only_site: bool, members_only: bool, spare: str | None) -> dict[str, int]:
        revoked_count, remaining = await ApiKeys(store=state, clock=clock).revoke_user_keys(
            scope,
            site=scope.site if only_site else None,
            roles=(KeyRole.MEMBER,) if members_only else tuple(KeyRole),
            spare=spare,
        )
        return {"api_keys": revoked_count, **({KEYS_LEFT: remaining} if remaining else {})}

    async def erase_deadlines(scope: Scope) -> dict[str, int]:
        return {"task_deadlines": await tasks.drop_user_deadlines(scope)}

    async def erase_runs(scope: Scope) -> dict[str, int]:
        engine = await open_engine()
        return {} if engine is None else {"task_runs": await engine.erase(scope)}

    async def erase_inbox(scope: Scope) -> dict[str, int]:
        count = await erase_waiting(state, scope, clock)
        return {"waiting_messages": count} if count else {}

    async def erase_memories(scope: Scope) -> dict[str, int]:
        counts = await erase_chat_memories(stores.front, scope, fresh_id)
        clear_caches()
        return counts

    async def erase_identities(scope: Scope) -> dict[str, int]:
        count = await people.erase(scope)
        return {"identities": count} if count else {}

    return PrivacyService(
        store=stores.unprotected,
        redactor=stores.redactor,
        erase=sessions.erase,
        clock=clock,
        elsewhere=(erase_deadlines, erase_runs, erase_inbox, erase_memories),
        end_keys=end_keys,
        identities=people.members,
        erase_identities=erase_identities,
        compactor=compactor,
    )
