"""A bounded cache: who stays, by number and by weight."""

from __future__ import annotations

from tenuto.lru_cache import LruCache


def filled(keys: str, *, most: int = 3) -> LruCache[str, str]:
    """A cache into which these keys were put, each with itself in capitals."""
    cache = LruCache[str, str](most)
    for key in keys:
        cache.put(key, key.upper())
    return cache


def test_the_least_recently_used_entry_makes_room() -> None:
    cache = filled("abc")
    cache.get("a")
    cache.put("b", "again")

    cache.put("d", "D")

    assert list(cache.items()) == [("a", "A"), ("b", "again"), ("d", "D")]


def test_peeking_is_no_use() -> None:
    cache = filled("abc")

    assert (cache.peek("a"), cache.get("x"), cache.peek("x")) == ("A", None, None)
    cache.put("d", "D")
    assert list(cache) == ["b", "c", "d"]


def test_entries_leave_until_the_rest_is_light_enough() -> None:
    cache = LruCache[str, str](10, most_weight=6, weigh=len)
    for text in ("aa", "bbb", "c"):
        cache.put(text[0], text)

    cache.put("d", "dd")

    assert (list(cache), cache.weight) == (["b", "c", "d"], 6)


def test_one_entry_may_be_heavier_than_all_may_be() -> None:
    cache = LruCache[str, str](10, most_weight=3, weigh=len)
    cache.put("a", "aa")

    cache.put("b", "b" * 9)

    assert (list(cache), cache.weight) == (["b"], 9)


def test_an_entry_that_is_put_again_is_weighed_again() -> None:
    cache = LruCache[str, list[int]](10, most_weight=4, weigh=len)
    grows = [1]
    cache.put("a", grows)
    cache.put("b", [1, 2])
    grows += [2, 3]

    cache.put("a", grows)

    assert (list(cache), cache.weight) == (["a"], 3)


def test_what_is_removed_weighs_nothing() -> None:
    cache = LruCache[str, str](10, most_weight=9, weigh=len)
    cache.put("a", "aa")
    cache.put("b", "bbb")

    assert (cache.pop("a"), cache.pop("a"), cache.weight) == ("aa", None, 3)
    cache.clear()
    assert (len(cache), cache.weight) == (0, 0)
