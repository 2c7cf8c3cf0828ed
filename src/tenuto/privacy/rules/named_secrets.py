"""Values after the name of a secret: passwords, tokens and keys in code, settings and prose, in five languages."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.cjk_secrets import cjk_secrets_after
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.secret_blocks import secrets_in_block
from tenuto.privacy.rules.secret_columns import secrets_in_column
from tenuto.privacy.rules.secret_names import OF_KEY, Name, find_secret_names
from tenuto.privacy.rules.secret_values import (
    SecretValue,
    announces_pair,
    is_blank,
    is_fingerprint,
    is_keylike,
    is_one_time_code,
    is_other_data,
    is_slug,
    is_varied,
    parse_value,
)
from tenuto.privacy.rules.several_secrets import further_values, old_and_new_values
from tenuto.privacy.rules.span import Find
from tenuto.privacy.rules.word_tables import any_of, load_table

_WORDS: Final = load_table("secrets")


class Link(StrEnum):
    """What links a name to its value: the weaker the link, the less the value may look like a word."""

    EQUALS = "="
    ASSIGNMENT = ":="
    ARROW = "=>"
    COLON = ":"
    BACK_ARROW = "<-"
    PROSE = "prose"
    """A verb: "the password is ..."."""
    SPACE = "space"
    FAR = "far"
    """Other words, or the end of a line."""


_SIGNS: Final = {
    "=": Link.EQUALS,
    ":=": Link.ASSIGNMENT,
    "==": Link.ASSIGNMENT,
    "=>": Link.ARROW,
    ">": Link.ARROW,
    ":": Link.COLON,
    "->": Link.COLON,
    "<-": Link.BACK_ARROW,
}
# "password for the staging server", "token (temporary)"; in the ASCII view the ü of "für" is a question mark. A full
# stop after a long word ends a sentence, but not after "Dr" and "Inc".
_ABOUT: Final = (
    r"(?:[ ]\([^()\n]{1,24}\)|[ ](?:for|of|to|on|in|from|f\?r|von|zum|zur)(?:[ ][\w@.'-]{1,16}(?<![a-z]{4}\.)){1,3}?)?"
)
_SIGN: Final = lazy_pattern(
    _ABOUT
    + r"""(?:["'`\])*]{0,3}[ \t]{0,3}(?P<sign>=>|:=|==?|:|<-|->|>)[ \t]*\n?[ \t]{0,3}"""
    # Names and values in two fields: <add key="DbPassword" value="...">, {"name": "DB_PASSWORD", "value": "..."}
    + r"""|(?:["'],|["']?,?\s{1,8})["']?(?P<field>[Vv]alue|[Dd]efault)["']?[ ]{0,8}[:=][ ]?"""
    + r"""|(?P<call>\()(?=["'][^\s"']{3,64}["']))"""
)
# The name and the value in separate fields: variable "db_password" { ... default = "..." }, the same in YAML,
# <entry key="password"><value>..., <key>password</key><string>...
_FIELD: Final = lazy_pattern(
    r"""["']?(?:[ \t]{0,3}\{[^{}]{0,64}?(?<!\w)(?:default|value)["']?[ \t]{0,8}[:=][ \t]{0,3}"""
    r"""|:[ \t]{0,2}\n(?:[ \t]{1,8}[A-Za-z]{1,12}:[^\n]{0,32}\n){0,2}[ \t]{1,8}(?:[Dd]efault|[Vv]alue):[ ]{1,2}"""
    r"""|[ ]?(?:</\w{1,12}>|/?>)\s{0,8}<(?:value|string)>)"""
)
_LONGEST_FIELD: Final = 80
_PROSE: Final = lazy_pattern(
    _ABOUT
    + r"""["'`*]?(?:'s\b|[ \t]*,?[ ](?:"""
    + r"""(?:has been |had been |is |was |got |gets |wurde |ist )?"""
    + r"""(?:(?:changed|reset|set|updated|switched|rotated|ge\?ndert) )?(?:to|as|auf)"""
    + r"""|will be|would be|should be|must be|has to be|used to be|is|was|are|becomes|remains|equals|it's"""
    + r"""|ist|lautet|lautete|war)\b)"""
    + r"""(?:[ ](?:now|still|currently|just|jetzt|probably|nun|noch|simply|actually|set to|called|either))?"""
    + r"""[ ]{0,2}(?::|->)?\s{0,2}"""
)
# "the password you need is": any words may come between, so the value must be unambiguous.
_FAR: Final = lazy_pattern(r"(?P<about>(?:,?[ ][a-z']{1,12}){1,5}),?(?:[ ](?:is|was|ist):?[ ]|:[ ]|[ ]->[ ])")
# "password?" on one line, and only the value on the next one, perhaps after the name of the speaker.
_ANSWER: Final = lazy_pattern(
    r"""[ ]?\??(?:[ ]?\n|(?<=\?)[ ])(?:[<>]{1,2}[ ]?|\[[0-9:. ]{4,20}\][ ]?)?(?:[A-Za-z]{1,16}:[ ])?"""
    r"""(?=[!-~]{6,48}[ ]?(?:\n|\Z))"""
)
_NOT_ABOUT: Final = frozenset(_WORDS["properties"].split())
_SPACE: Final = lazy_pattern(r"""["'`]?,?[ \t]{1,3}(?:[#-]+[ ])?(?=\S{3})""")
# In a connection string a value ends at the semicolon, and may contain spaces: ;Pwd=three plain words;
_SPACED: Final = lazy_pattern(r"""[^\s;="',]+(?:[ ][^\s;="',]+){1,4}(?=;)""")
_CLOSES: Final = lazy_pattern(r"</[\w.:-]{0,32}\Z")
_COMMAND: Final = lazy_pattern(r"[a-z][\w./-]*[ ]")
# "never set the password to ...": an example, not a value in use.
_WARNING: Final = lazy_pattern(
    r"(?:never|don.?t|do not|avoid)[ ](?:ever[ ])?(?:set|use|make|choose|pick|reuse|setting|using|choosing)[ ]"
    r"(?:[a-z]{1,8}[ ]){0,3}\Z"
)
_SETTING_NAME: Final = lazy_pattern(
    r"""(?<![A-Za-z0-9_])(?P<whose>[A-Z][A-Z0-9_]{1,24})_KEYS?["']?[ ]?[:=][ ]?["']?\Z"""
)
_PUBLIC_SETTING: Final = lazy_pattern(any_of(_WORDS["public_settings"]))
# "set my password to ... for phone: 555-0187": after "to" comes the value.
_SETTING: Final = lazy_pattern(r"(?:set|chang|reset|updat|switch|rotat)[a-z]{0,3}[ ](?:[a-z]{1,8}[ ]){0,3}\Z")
_LONGEST_LINK: Final = 64
_LINKS: Final = (
    (_SIGN, Link.EQUALS),
    (_FIELD, Link.EQUALS),
    (_PROSE, Link.PROSE),
    (_FAR, Link.FAR),
    (_SPACE, Link.SPACE),
    (_ANSWER, Link.FAR),
)
# `sk-` begins the keys of many providers, and is left where the rest is cut short: api_key=sk-xxx
_SHORTENED_KEY: Final = lazy_pattern("sk-[A-Za-z0-9]{3}")
_JOINED: Final = lazy_pattern(r"[\w.\"'?&-]")
_MEASURE: Final = lazy_pattern(rf"[ ](?:{any_of(_WORDS['units'])})")
_WORDS_JOINED: Final = lazy_pattern(r"[A-Za-z]+(?:[-_.'/][A-Za-z]+)*")


def find_named_secrets(view: FoldedText) -> Iterator[Find]:
    """Every value after the English or German name of a secret.

    In `password=key=...` the value is the last name's. Where that finds none, as what follows is no key, it is the
    value of the name before.
    """
    reached, names = 0, find_secret_names(view)
    for before, name, following in zip((None, *names), names, (*names[1:], None), strict=False):
        column = secrets_in_column(view, name)
        if column is not None:
            yield from column
        elif name.start >= reached and not _heads(view, name, following):
            found = list(_secrets_after(view, name))
            if not found and before is not None and before.start >= reached and _heads(view, before, name):
                followed = view.ascii[name.end + 1 : name.end + 3].strip()
                found = list(_secrets_after(view, before)) if followed else []
            if found:
                reached = found[-1][1]
                yield from found


def _heads(view: FoldedText, name: Name, following: Name | None) -> bool:
    """Whether a name heads another one: only a sign is between two names that both have one."""
    if following is None or following.start - name.end > 2:
        return False
    sign = view.ascii[name.end : following.start].rstrip(" ")
    return sign in ("=", ":") and view.ascii[following.end : following.end + 1] == sign


def _secrets_after(view: FoldedText, name: Name) -> Iterator[Find]:
    """The value after `name`, if there is one, and further ones beside it."""
    view.work.judged += 1
    if view.text is not view.ascii and view.text[name.end : name.end + 2].strip()[:1] > "\x7f":
        yield from cjk_secrets_after(view, name)
        return
    elsewhere = secrets_in_block(view, name)
    if elsewhere is None:
        elsewhere = old_and_new_values(view, name)
    if elsewhere is not None:
        yield from elsewhere
        return
    pair = announces_pair(view, name.start)
    for pattern, link in _LINKS[:3] if name.kind == "weak" else _LINKS:
        longest = _LONGEST_FIELD if pattern is _FIELD else _LONGEST_LINK
        match = pattern.match(view.ascii, name.end, name.end + longest)
        if match is None:
            continue
        value = _value_with_spaces(view, name, match.end()) or parse_value(view, match.end(), pair=pair)
        sign = match["sign"] if pattern is _SIGN else None
        if value is None or _is_about_something_else(view, name, match[0], link, sign):
            continue
        if sign is not None:
            link = _SIGNS[sign]
        elif link is Link.SPACE and _is_switch(view, name.start):
            link = Link.EQUALS
        if _is_secret(view, name.kind, link, value) and not _is_example_or_command(view, name, link, value):
            yield _start_with_name(view, name, match.end(), value.start), value.end, name.rule
            yield from further_values(view, name, value)
            return


def _is_about_something_else(view: FoldedText, name: Name, between: str, link: Link, sign: str | None) -> bool:
    """Whether the words between the name and the value are about something else: "set my password to ... from ...:".

    After the name in </password> anything may follow.
    """
    if link is Link.FAR:
        return not _NOT_ABOUT.isdisjoint(between.split())
    if sign == ">":
        return _CLOSES.search(view.ascii, max(0, name.start - 34), name.start) is not None
    if link is not Link.EQUALS or sign == "=" or not between.startswith(" to "):
        return False
    return _SETTING.search(view.lower, max(0, name.start - 40), name.start) is not None


def _value_with_spaces(view: FoldedText, name: Name, at: int) -> SecretValue | None:
    """The value at `at` including its spaces, where a connection string delimits it."""
    text = view.ascii
    if text[at - 1] != "=" or text[max(0, name.start - 2) : name.start].rstrip(" ")[-1:] != ";":
        return None
    match = _SPACED.match(text, at, at + _LONGEST_LINK)
    return None if match is None else SecretValue(*match.span(), False)


def _is_example_or_command(view: FoldedText, name: Name, link: Link, value: SecretValue) -> bool:
    """Whether it is no value: a one-time code, a command with arguments, a bad example."""
    if is_one_time_code(view, name.start, view.text[value.start : value.end]):
        return True
    text, first = view.ascii, max(0, name.start - 48)
    if link is Link.EQUALS:
        return text[value.start - 1] == "`" and _COMMAND.match(text, value.start, value.end) is not None
    if link is Link.SPACE and ")" not in text[max(first, text.rfind("$(", first, name.start)) : name.start]:
        return text.find("$(", first, name.start) >= 0
    return link in (Link.PROSE, Link.SPACE) and _WARNING.search(view.lower, first, name.start) is not None


def _is_switch(view: FoldedText, begin: int) -> bool:
    """Whether the name is an option of a command: `--password`, `--db-password`."""
    option = view.ascii[max(0, begin - 24) : begin].rpartition(" ")[2]
    return option.startswith("-") and "=" not in option


def _start_with_name(view: FoldedText, name: Name, value: int, start: int) -> int:
    """`password=...` is redacted as a whole; elsewhere the name stays, for readability."""
    qualified = OF_KEY.search(view.lower, max(0, name.start - 16), name.start)
    begin = name.start if qualified is None else qualified.start()
    lone = not _JOINED.match(view.ascii[begin - 1 : begin])
    return begin if lone and start == value and view.ascii[name.end : value] == "=" else start


def _is_secret(view: FoldedText, kind: str, link: Link, value: SecretValue) -> bool:
    text = view.text[value.start : value.end]
    if is_blank(text) or (link is not Link.EQUALS and is_other_data(text)):
        return False
    if link is Link.FAR:
        return is_keylike(text, 6) and (kind == "key" or not is_fingerprint(text))
    if kind == "password":
        return _is_password(view, link, value)
    if link in (Link.EQUALS, Link.ASSIGNMENT):
        if _SHORTENED_KEY.match(text):
            return True
        return is_keylike(text, 6) and not (kind == "weak" and is_slug(text))
    if kind == "weak":
        return is_keylike(text, 20) and (not is_fingerprint(text) or _is_setting(view, value.start))
    return is_keylike(text, 16 if link is Link.SPACE else 8)


def _is_setting(view: FoldedText, at: int) -> bool:
    """Whether the name before the value is a setting's: `PAGERDUTY_KEY: ...`, and not the key of a table or a cache."""
    name = _SETTING_NAME.search(view.ascii, max(0, at - 40), at)
    return name is not None and _PUBLIC_SETTING.search(name["whose"]) is None


def _is_password(view: FoldedText, link: Link, value: SecretValue) -> bool:
    """The weaker the link to the name, the less the value may look like a word."""
    text = view.text[value.start : value.end]
    varied = is_varied(text)
    if value.quoted:
        return len(text) >= 3 and (varied or link not in (Link.PROSE, Link.SPACE) or " " not in text)
    if link in (Link.EQUALS, Link.ASSIGNMENT, Link.ARROW):
        return len(text) >= (4 if text.isdigit() else 3)
    if len(text) < 4:
        return False
    if link is Link.COLON:
        return varied or _is_last_word(view, value)
    if not varied or _MEASURE.match(view.text, value.end):
        return False
    return link is not Link.SPACE or (len(text) >= 6 and any(map(str.isdigit, text)))


def _is_last_word(view: FoldedText, value: SecretValue) -> bool:
    """A word counts as a password if nothing follows it on its line, so that no sentence continues."""
    rest = view.text[value.end : value.end + 2]
    return (rest[:1] in ("", "\n") or rest in (".", ".\n")) and (
        _WORDS_JOINED.fullmatch(view.text, value.start, value.end) is not None
    )
