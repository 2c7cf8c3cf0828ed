"""When a thing was said: the searchable terms of a date, and the period that "yesterday" or 上周 means in a query.

A short table, not a grammar: what it does not know stays text. Explicit dates become terms, so that "8 May", 2023-05-08
and 5月8日 find what was said on that day; relative words become a period that ends before or at `now`.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from tenuto.model.patterns import lazy_pattern
from tenuto.recall.lexical import MAX_CHARACTERS, terms

_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAYS_ZH: Final = "一二三四五六日"
_NUMBERS: Final = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7} | {
    character: value for value, character in enumerate("一二三四五六七八九十", 1)
}
_NUMBERS["两"] = 2

_MONTH: Final = "|".join(f"{month[:3]}(?:{month[3:]})?" if len(month) > 3 else month for month in _MONTHS)
_DATE: Final = lazy_pattern(
    r"(?P<y1>\d{4})-(?P<m1>\d{1,2})-(?P<d1>\d{1,2})(?!\d)"
    r"|(?:(?P<y2>\d{4})\s*年\s*)?(?P<m2>\d{1,2})\s*月(?:\s*(?P<d2>\d{1,2})\s*[日号號])?"
    rf"|\b(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<m3>{_MONTH})\b"
    rf"|\b(?P<m4>{_MONTH})\s+(?P<d4>\d{{1,2}})(?:st|nd|rd|th)?\b",
    re.IGNORECASE,
)
_WEEKDAY: Final = "|".join(_WEEKDAYS)
_COUNT: Final = r"\d{1,3}|" + "|".join(sorted((word for word in _NUMBERS if word.isascii()), key=len, reverse=True))
_RELATIVE: Final = lazy_pattern(
    r"(?P<day>\b(?:the\s+)?day\s+before\s+yesterday\b|\byesterday\b|\blast\s+night\b|\btoday\b|大前天|前天|前日|昨[天日晚]|今[天日早晚])"
    rf"|\b(?P<count>{_COUNT})\s+(?P<unit>day|week|month|year)s?\s+ago\b"
    r"|(?P<count_zh>\d{1,3}|[一两二三四五六七八九十])\s*(?:个)?\s*(?P<unit_zh>天|日|周|星期|礼拜|月|年)\s*(?:以|之)?前"
    rf"|\b(?:(?P<which>last|this|on|past)\s+)?(?P<weekday>{_WEEKDAY})\b"
    r"|(?P<which_zh>上个?|这个?|本)?(?:周|星期|礼拜)(?P<weekday_zh>[一二三四五六日天])"
    r"|\b(?P<span_which>last|past|this)\s+(?P<span>week|month|year)\b"
    r"|(?P<span_which_zh>上个?|这个?|本|今|去)(?P<span_zh>周|星期|礼拜|月|年)",
    re.IGNORECASE,
)
# One of these stands in every period that is named; most questions have none, and are not searched.
_PERIOD_SIGNS: Final = ("day", "night", "week", "month", "year", *"天日晚早周期拜月年")
_DAYS: Final = {"前天": 2, "前日": 2, "大前天": 3, "yesterday": 1, "today": 0}
_UNITS: Final = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}
# Words that ask for a conversation and name nothing in it: with a period beside them, the period is the question.
_ASKING_TEXT: Final = """
chat chatted conversation discuss discussed happen happened mention mentioned recall remember remind said speak spoke
talk talked topic topics
"""
_ASKING_TEXT_ZH: Final = """
讨论 聊 聊天 聊过 聊到 谈 谈过 谈到 说 说过 提 提到 提过 记得 还记 话题 事 事情 发生
"""
_ASKING: Final = frozenset(terms(_ASKING_TEXT)) | frozenset(_ASKING_TEXT_ZH.split())


class Period(NamedTuple):
    """From `start` to before `end`."""

    start: datetime
    end: datetime


class Dated(NamedTuple):
    """A query's terms, and the period it speaks of; `only` where it asks for nothing but the period."""

    terms: list[str]
    period: Period | None
    only: bool


def date_terms(said_at: datetime) -> list[str]:
    """The terms under which a day is found, in English and Chinese: 8, may, 2023, monday, 5月, 8日, 星期一, 周一."""
    return list(_day_terms(said_at.date()))


def text_terms(text: str) -> list[str]:
    """The terms of a text, explicit dates in the form of `date_terms`."""
    dates: list[str] = []

    def replace_date(match: re.Match[str]) -> str:
        groups = {key[0]: value for key, value in match.groupdict().items() if value}
        month = int(groups["m"]) if groups["m"].isdecimal() else _month_number(groups["m"])
        day = int(groups.get("d", 0))
        if not 1 <= month <= 12 or day > 31:
            return match[0]
        dates.extend(_explicit_terms(int(groups.get("y", 0)), month, day))
        return " "

    text = text[:MAX_CHARACTERS]
    # Only digits begin or end an explicit date: most texts have none, and are not searched.
    if any(map(str.isdecimal, text)):
        text = _DATE.sub(replace_date, text)
    return terms(text) + dates


def read_query(text: str, now: datetime) -> Dated:
    """The terms of a query and the period that its relative words mean, the first of them where there are several."""
    period: Period | None = None
    weekdays: list[str] = []

    def replace_period(match: re.Match[str]) -> str:
        nonlocal period
        if period is not None:
            return match[0]
        period = _period(match, now)
        if name := match["weekday"]:
            weekdays.append(name)
        elif name := match["weekday_zh"]:
            weekdays.append(f"周{name}")
        return " "

    text = text[:MAX_CHARACTERS]
    lower_text = text.lower()
    if any(sign in lower_text for sign in _PERIOD_SIGNS):
        text = _RELATIVE.sub(replace_period, text)
    query_terms = text_terms(text)
    subject = [term for term in query_terms if term not in _ASKING]
    if period is not None and not subject:
        return Dated([], period, only=True)
    return Dated(query_terms + terms(" ".join(weekdays)), period, only=False)


@lru_cache(maxsize=1_024)
def _day_terms(day: date) -> tuple[str, ...]:
    weekday = _WEEKDAYS_ZH[day.weekday()]
    sunday = " 星期天 周天" if weekday == "日" else ""
    weekday_terms = terms(f"{_WEEKDAYS[day.weekday()]} 星期{weekday} 周{weekday}{sunday}")
    return (*_explicit_terms(day.year, day.month, day.day), *weekday_terms)


def _explicit_terms(year: int, month: int, day: int) -> list[str]:
    date_terms = [*terms(_MONTHS[month - 1]), f"{month}月"]
    if day:
        date_terms += [str(day), f"{day}日", f"{month}月{day}日"]
    if year:
        date_terms.append(str(year))
    return date_terms


def _month_number(name: str) -> int:
    return next(number for number, month in enumerate(_MONTHS, 1) if month.startswith(name.casefold()[:3]))


def _period(match: re.Match[str], now: datetime) -> Period:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if day := match["day"]:
        day = " ".join(day.casefold().split())
        ago = 2 if day.endswith("before yesterday") else _DAYS.get(day, 0 if day.startswith("今") else 1)
        return _days(today, ago)
    if count := match["count"] or match["count_zh"]:
        unit = _UNITS.get(match["unit_zh"] or "", (match["unit"] or "").casefold())
        number = int(count) if count.isdecimal() else _NUMBERS[count.casefold()]
        return _span(today, unit, number) if unit != "day" else _days(today, number)
    if match["weekday"] or match["weekday_zh"]:
        return _weekday(match, today)
    which = (match["span_which"] or match["span_which_zh"]).casefold()
    unit = _UNITS.get(match["span_zh"] or "", (match["span"] or "").casefold())
    return _span(today, unit, 1 if which in {"last", "past", "上", "上个", "去"} else 0)


def _weekday(match: re.Match[str], today: datetime) -> Period:
    """The named day of the week that passed last; 上周五 is the Friday of the week before this one."""
    name, name_zh = match["weekday"], match["weekday_zh"]
    number = _WEEKDAYS.index(name.casefold()) if name else _WEEKDAYS_ZH.index("日" if name_zh == "天" else name_zh)
    if (match["which_zh"] or "").startswith("上"):
        return _days(today, today.weekday() + 7 - number)
    return _days(today, (today.weekday() - number - 1) % 7 + 1)


def _days(today: datetime, ago: int) -> Period:
    start = today - timedelta(days=ago)
    return Period(start, start + timedelta(days=1))


def _span(today: datetime, unit: str, ago: int) -> Period:
    """The whole week (from Monday), month or year, so many of them ago."""
    if unit == "week":
        start = today - timedelta(days=today.weekday(), weeks=ago)
        return Period(start, start + timedelta(weeks=1))
    months = 12 if unit == "year" else 1
    first = today.year * 12 + (0 if unit == "year" else today.month - 1) - months * ago
    return Period(_first_of(today, max(12, first)), _first_of(today, max(12, first) + months))


def _first_of(today: datetime, month: int) -> datetime:
    return today.replace(year=month // 12, month=month % 12 + 1, day=1)
