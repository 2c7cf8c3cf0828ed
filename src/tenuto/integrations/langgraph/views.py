"""What the writer of a checkpoint knows of its thread, and the difference that a checkpoint makes to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from langgraph.checkpoint.base import ChannelVersions, Checkpoint
from msgspec.structs import replace

from tenuto.integrations.langgraph.projection import Dump, Load, State
from tenuto.integrations.langgraph.records import Blob, Put
from tenuto.integrations.langgraph.values import extends

_Place: TypeAlias = tuple[str, ...]
_MOST_VIEWS: Final = 32


@dataclass(slots=True)
class RunView:
    """What a run has read of the newest checkpoint of a thread's namespace, or put since then; lists are private."""

    last: str | None = None
    lists: Mapping[str, Sequence[Any]] | None = None
    names: frozenset[str] = frozenset()
    versions: Mapping[str, Any] | None = None
    incarnation: str | None = None

    @classmethod
    def of(cls, state: State, versions: Mapping[str, Any], incarnation: str) -> RunView:
        """What a run knows that has read this state in this incarnation of the thread's session."""
        return cls(state.put.id, state.lists, frozenset((*state.values, *state.lists)), versions, incarnation)

    def difference(
        self, record: Put, checkpoint: Checkpoint, new_versions: ChannelVersions, dump: Dump, load: Load
    ) -> tuple[Put, dict[str, Any]]:
        """The record of a checkpoint that continues this view, and its lists as private objects."""
        values, known_versions = checkpoint["channel_values"], self.versions or {}
        plain: dict[str, Blob] = {}
        lists: dict[str, Blob] = {}
        added: dict[str, tuple[int, Blob]] = {}
        for name, value in values.items():
            same_version = name not in new_versions and checkpoint["channel_versions"].get(name) == known_versions.get(
                name
            )
            if name in self.names and same_version:
                continue
            base = (self.lists or {}).get(name) if name in self.names else ()
            if type(value) is not list:
                plain[name] = dump(value)
            elif base is None or not extends(value, base):
                lists[name] = dump(value)
            elif len(value) > len(base) or name not in self.names:
                added[name] = (len(base), dump(value[len(base) :]))
        new_lists = {name: load(blob) for name, blob in lists.items()}
        new_lists.update({name: load(blob) for name, (_, blob) in added.items()})
        missing = sorted(self.names - values.keys())
        return replace(record, values=plain, lists=lists, added=added, dropped=missing), new_lists

    def advance(self, record: Put, checkpoint: Checkpoint, new_lists: Mapping[str, Any], incarnation: str) -> None:
        """Take a stored checkpoint for what the run knows now."""
        values, known_lists = checkpoint["channel_values"], self.lists or {}
        lists = {name: items for name, items in known_lists.items() if name in values and name not in record.values}
        for name, items in new_lists.items():
            lists[name] = [*lists[name], *items] if name in record.added and name in lists else items
        self.last, self.lists, self.names = record.id, lists, frozenset(values)
        self.versions, self.incarnation = checkpoint["channel_versions"], incarnation


# By run: the tasks and threads that LangGraph starts for a run inherit its context. A run that read the newest
# checkpoint continues from it, also when others store theirs first; one that names an older one goes back on purpose.
_views: ContextVar[Mapping[_Place, RunView]] = ContextVar("tenuto_langgraph_views")
_NO_VIEWS: Final[Mapping[_Place, RunView]] = {}


def view_of(place: _Place) -> RunView | None:
    """What the run of this context knows of a namespace."""
    return _views.get(_NO_VIEWS).get(place)


def remember_view(place: _Place, view: RunView | None) -> None:
    """Let the run of this context continue from a view; in a new mapping, since other runs may have the same one."""
    views = {name: one for name, one in _views.get(_NO_VIEWS).items() if name != place}
    if view is not None:
        views[place] = view
    _views.set(dict(list(views.items())[-_MOST_VIEWS:]))


def with_values(record: Put, values: Mapping[str, Any], dump: Dump) -> Put:
    """The record of a checkpoint that stands for itself."""
    lists = {name: dump(value) for name, value in values.items() if type(value) is list}
    plain = {name: dump(value) for name, value in values.items() if name not in lists}
    return replace(record, full=True, lists=lists, values=plain, added={}, dropped=[])
