"""Commands on a session as values: what a lane queues, and what a journal keeps until the store is back."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, TypeAlias

from tenuto.model import AppendBatch, AppendResult, BeginTurn, Draft, FinishTurn, OpenTurn, Scope
from tenuto.model.values import Value
from tenuto.stores.engine import rules
from tenuto.stores.engine.record import Answer, Record, Step


class Command(Protocol[Answer]):
    """A command, with the messages it brings."""

    @property
    def scope(self) -> Scope:
        """Who sends it."""
        ...

    @property
    def session_id(self) -> str:
        """Which session it is on."""
        ...

    @property
    def turn_id(self) -> str:
        """What it counts as a part of; a batch outside a turn counts by itself."""
        ...

    @property
    def messages(self) -> tuple[Draft, ...]:
        """What it appends."""
        ...

    def apply(self, record: Record | None, now: datetime) -> Step[Answer]:
        """The rule."""
        ...


class Begin(Value, frozen=True, kw_only=True, tag="begin"):
    """Begin a turn."""

    scope: Scope
    request: BeginTurn

    @property
    def session_id(self) -> str:
        return self.request.session_id

    @property
    def turn_id(self) -> str:
        return self.request.turn_id

    @property
    def messages(self) -> tuple[Draft, ...]:
        return self.request.user_messages

    def apply(self, record: Record | None, now: datetime) -> Step[OpenTurn]:
        return rules.begin(record, self.scope, self.request, now)


class _OnTurn(Value, frozen=True, kw_only=True):
    """A command on a turn that has begun."""

    turn: OpenTurn

    @property
    def scope(self) -> Scope:
        return self.turn.scope

    @property
    def session_id(self) -> str:
        return self.turn.session.id

    @property
    def turn_id(self) -> str:
        return self.turn.id


class Finish(_OnTurn, frozen=True, kw_only=True, tag="finish"):
    """End a turn."""

    request: FinishTurn

    @property
    def messages(self) -> tuple[Draft, ...]:
        return self.request.reply

    def apply(self, record: Record | None, now: datetime) -> Step[AppendResult]:
        return rules.finish(record, self.turn, self.request, now)


class Renew(_OnTurn, frozen=True, kw_only=True, tag="renew"):
    """Extend the lease of a turn."""

    messages: tuple[Draft, ...] = ()

    def apply(self, record: Record | None, now: datetime) -> Step[OpenTurn]:
        return rules.renew(record, self.turn, now)


class Append(Value, frozen=True, kw_only=True, tag="append"):
    """Append outside a turn."""

    scope: Scope
    session_id: str
    batch: AppendBatch

    @property
    def turn_id(self) -> str:
        return self.messages[0].id if self.messages else ""

    @property
    def messages(self) -> tuple[Draft, ...]:
        return self.batch.messages

    def apply(self, record: Record | None, now: datetime) -> Step[AppendResult]:
        return rules.append(record, self.scope, self.session_id, self.batch, now)


JournaledCommand: TypeAlias = Begin | Finish | Renew | Append
"""The commands that a journal may acknowledge while the store does not answer."""
