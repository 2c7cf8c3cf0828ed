"""Particular goods found on a shelf: by id, by place in what was shown last, or by name."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import MAX_KEPT, MAX_LISTED, MAX_PLACES, Details, Talk
from tenuto.assistants.goods.shop import Entry, Item, Shelf
from tenuto.assistants.goods.words import ASPECTS, CATEGORIES, MEMORY_AND_STORAGE, UNIT, fold, terms_in
from tenuto.model.expression import expression
from tenuto.model.values import Value

_CANDIDATES: Final = 5
_MAX_NAME: Final = 200
_SPACED_UNIT: Final = expression(rf"(?<=\d)\s+(?={UNIT})")
_BETWEEN: Final = expression(r"[,+-]")
# Between a name and what is asked of it.
_ASKED: Final = expression(r"^(?:是不是|有没有|能不能|支不支持|支持|可以|带|有|能|会|是)+(?=.)")


class Looked(Value, frozen=True, kw_only=True):
    """The goods that are meant, or else those `which` may be; how many `more` were meant, and names nothing has.

    `about` is what is asked of them, where it stood behind the name.
    """

    items: tuple[Item, ...] = ()
    which: tuple[Item, ...] = ()
    more: int = 0
    missing: tuple[str, ...] = ()
    about: str | None = None


def looked_up(shelf: Shelf, asked: Details, talk: Talk) -> Looked:
    """The goods that a question is about."""
    ids = list(dict.fromkeys((*asked.ids, *talk.at(asked.places))))
    most = MAX_LISTED if asked.about is not None else MAX_PLACES
    items = shelf.items(ids[:most])
    if not asked.names:
        return Looked(items=tuple(items), more=len(shelf.items(ids[most:MAX_KEPT])))
    if asked.unsplit and (split := _split(shelf, asked)) is not None:
        return split
    names = asked.names[:MAX_PLACES]
    found = _alike([called(shelf, name) for name in names], items)
    missing = tuple(name for name, fitting in zip(names, found, strict=True) if not fitting)
    if len(names) == 1 and not items:
        return _one(found[0], asked, missing)
    share = max(1, (MAX_PLACES - len(items)) // len(names))
    chosen = dict.fromkeys(item.id for fitting in found for item in fitting[:share])
    return Looked(
        items=(*items, *shelf.items([id_ for id_ in chosen if id_ not in ids])),
        more=sum(len(fitting[share:]) for fitting in found),
        missing=missing,
    )


def _one(fitting: list[Item], asked: Details, missing: tuple[str, ...]) -> Looked:
    """A name that several have: of few of them the one thing that is asked is told of each."""
    told = asked.about not in (None, "price") and len(fitting) <= MAX_LISTED
    if len(fitting) == 1 or (fitting and told):
        return Looked(items=tuple(fitting))
    return Looked(which=tuple(fitting[:_CANDIDATES]), missing=missing)


def _split(shelf: Shelf, asked: Details) -> Looked | None:
    """The goods whose name the words begin with, by as many of them as some name has, and what is asked of those."""
    words = asked.names[0].split()
    for end in range(len(words), 0, -1):
        if bearing := _named(shelf, " ".join(words[:end])):
            about = _aspect(" ".join(words[end:]))
            found = _one(_sorted(bearing), replace(asked, about=about), ())
            return replace(found, about=about)
    return None


def _aspect(rest: str) -> str | None:
    """What is asked of goods behind their name: an attribute, or a word that they may be noted with."""
    aspect = next((aspect for aspect, pattern in ASPECTS if pattern.search(rest)), None)
    return aspect or " ".join(terms_in(_ASKED.sub("", rest))) or None


def _alike(found: list[list[Item]], beside: list[Item]) -> list[list[Item]]:
    """What is compared is of one kind, where the names allow it."""
    kinds = {item.category for item in beside or next(filter(None, found), [])}
    return [[item for item in fitting if item.category in kinds] or fitting for fitting in found]


def called(shelf: Shelf, name: str) -> list[Item]:
    """The items of that very name; else those all of whose asked words fit, with the shortest names first."""
    return _sorted(_named(shelf, name) or _worded(shelf, name))


def _sorted(entries: list[Entry]) -> list[Item]:
    return [entry.item for entry in sorted(entries, key=lambda entry: (len(entry.item.name), entry.item.id))]


def _named(shelf: Shelf, name: str) -> list[Entry]:
    """Those that bear the name: before a "Lumora S5 Pro" comes whatever is just a "Lumora S5"."""
    wanted = f" {_plain(name)} "
    bearing = [entry for entry in shelf.entries if any(wanted in told for told in _names(entry.item))]
    just = [entry for entry in bearing if any(_ends(told, wanted, entry.item) for told in _names(entry.item))]
    return just or bearing


def _worded(shelf: Shelf, name: str) -> list[Entry]:
    terms, unknown = shelf.known((name,))
    if not terms or unknown:
        return []
    return [entry for entry in shelf.entries if all(map(entry.fits, terms))]


def _ends(told: str, wanted: str, item: Item) -> bool:
    """Whether behind the name comes nothing but what kind of goods it is, and how much it holds."""
    rest = told.partition(wanted)[2].strip() if wanted in told else None
    kind = CATEGORIES.get(item.category)
    return rest is not None and (not rest or (kind is not None and rest.startswith((kind.one, kind.zh))))


def _names(item: Item) -> tuple[str, ...]:
    return tuple(f" {_plain(name)} " for name in (item.name, item.name_zh) if name)


def _plain(name: str) -> str:
    labelled = MEMORY_AND_STORAGE.sub(r"\1gb \2gb", fold(name, _MAX_NAME))
    return " ".join(_BETWEEN.sub(" ", _SPACED_UNIT.sub("", labelled)).split())
