"""The wiring of people: changes are noted in the audit of their tenant's site."""

from __future__ import annotations

from tenuto.access import People, PersonNews
from tenuto.model import Scope
from tenuto.model.values import JsonObject
from tenuto.ports import Clock, StateStore
from tenuto.privacy.compliance.audit import Act, AuditLog
from tenuto.settings import Settings

_ACTS = {PersonNews.LINKED: Act.LINKED, PersonNews.UNLINKED: Act.UNLINKED}


def make_people(settings: Settings, state: StateStore, clock: Clock) -> People:
    """Which users of a site are one person."""
    audit = AuditLog(state=state, clock=clock)

    async def note(scope: Scope, news: PersonNews, by: str, about: JsonObject) -> None:
        await audit.note(scope, _ACTS[news], by=by, about=about)

    return People(state=state, note=note, clock=clock, code_life=settings.link_code_life)
