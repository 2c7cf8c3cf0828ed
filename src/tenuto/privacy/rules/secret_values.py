"""The form of secret values after a name, and of stand-ins for them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.word_tables import any_of, load_table


class SecretValue(NamedTuple):
    """The range of a value, and whether it is quoted."""

    start: int
    end: int
    quoted: bool


_WORDS: Final = load_table("secrets")
_QUOTED: Final = lazy_pattern(
    r"""(["'`])(?P<value>[^"'`\n]{1,64})\1|“(?P<curly>[^”\n]{1,64})”|[「『【](?P<corner>[^」』】\n]{1,64})[」』】]"""
)
# With letters of other alphabets, but not of scripts whose sentences go on without a space.
_BARE: Final = lazy_pattern(r"[!-~\u00c0-\u024f\u0370-\u052f\u1e00-\u1eff]{1,512}")
_PAIR: Final = lazy_pattern(r"[!-~]{1,32}?(?: ?[/|] ?(?=[!-~])|(?: ?[,和、] ?|[ ]{1,2})(?=[!-~]*[0-9!@#$%^&*]))")
_PAIRED: Final = lazy_pattern(r"(?:/|账号|帐号|用户名|账户|用户)[/、和及&+ ]{0,2}\Z")
_ONE_TIME: Final = lazy_pattern(rf"(?:{any_of(_WORDS['one_time'])})[ -]?\Z", re.IGNORECASE)
# Characters of the syntax around a value.
_CUT: Final = lazy_pattern(
    r"&(?=[\w.-]+=)|;(?=\s|$|[\w ]+=)|,(?=\s|$|\"|\w+=)|[\"'`<>]|\\[nrt\"]|\)(?=[\s,.;]|$)|[}\]](?=[\s,;}\]]|$)|\||//"
)
_CUTTING: Final = lazy_pattern(r"[&;,\"'`<>\\)}\]|/]")
_LOOKUP: Final = lazy_pattern(
    r"""[$%<{(&\[|?@\\]|:[A-Za-z_]+\Z|!(?:vault|Ref|Sub|env|secret)\b|[A-Za-z_][\w.]*[(\[]|[a-z_]+(?:\.[A-Za-z_]+)+\Z|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?:=|\Z)
    |(?:os|process|env|config|settings|self|this|request|req|args|params|secrets|vars?|local|data|ENV|System)\.\w
    |(?:await|new|return)[ ]|https?://|/[a-z]+/|\.{1,2}/|(?:~/|[A-Za-z]:\\)[\w.-]+[/\\.]""",
    re.VERBOSE,
)
_BLANK: Final = lazy_pattern(r"[*xX.•●_#?-]+|(?:sk|pk|ghp|key)[-_](?:\.{2,}|x{4,}|\*+)")
_HOLE: Final = lazy_pattern(r"your|placeholder|\.\.\.|<|\*{3}|example_|[-_]here|\$\{|\{\{", re.IGNORECASE)
_JUDGED: Final = 128
"""How many characters of a value decide whether it is one."""
_STAND_INS: Final = frozenset(_WORDS["stand_ins"].split())
_DATE: Final = lazy_pattern(
    r"(?:19|20)[0-9]{2}[-/.年][0-9]{1,2}(?:[-/.月][0-9]{1,2})?|[0-9]{1,2}[:.][0-9]{2}(?::[0-9]{2})?"
    r"|[0-9]{1,2}[-~][0-9]{1,2}|[0-9]{1,4}/[0-9]{1,4}|v?[0-9]+(?:\.[0-9]+){1,3}"
)
_MAIL: Final = lazy_pattern(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
# An IPv6 address, or its rest after a colon: db8:fef8::7. Passwords have other colons: ab12:cd34.
_V6: Final = lazy_pattern(
    "(?=[0-9A-Fa-f:]*::|(?:[0-9A-Fa-f]+:){7})[0-9A-Fa-f]{3,4}:(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{0,4}(?:/[0-9]{1,3})?"
)
_SLUG: Final = lazy_pattern(r"(?:[a-z]{2,}[0-9]{0,2}|v?[0-9]{1,8})(?:[_.:/#-](?:[a-z]+[0-9]{0,2}|[0-9]{1,8}))*")
_CAMEL: Final = lazy_pattern(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_UUID: Final = lazy_pattern(
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}"
)


def parse_value(view: FoldedText, at: int, *, pair: bool = False) -> SecretValue | None:
    """The value that begins at `at`. Of a `pair` such as admin/secret it is the second half."""
    quoted = _QUOTED.match(view.text, at)
    if quoted is not None:
        return SecretValue(*quoted.span(quoted.lastgroup or "value"), True)
    if pair:
        first = _PAIR.match(view.text, at)
        at = at if first is None else first.end()
    # In the text: in its ASCII view a Chinese character would be a question mark.
    bare = _BARE.match(view.text, at + (view.ascii[at : at + 1] in ("'", '"', "`")))
    if bare is None:
        return None
    end = trim_end(view.ascii, bare.start(), _before_bracket(view, bare.start(), bare.end()))
    if end <= bare.start() or (pair and view.ascii[end - 1] == "/"):
        return None
    return SecretValue(bare.start(), end, False)


def announces_pair(view: FoldedText, at: int) -> bool:
    """Whether the name at `at` is of a user and a password: `user/password: admin/...`, 账号密码：admin/..."""
    text = view.text
    near = text[max(0, at - 5) : at]
    if "/" not in near and near.isascii():
        return text is not view.ascii and text.startswith("账密", at)
    return text.startswith("账密", at) or _PAIRED.search(near) is not None


def _before_bracket(view: FoldedText, start: int, end: int) -> int:
    """Where the value ends if a full-width bracket follows it: 密码：admin568（区分大小写）."""
    if view.text is view.ascii or view.text[end : end + 1] <= "\x7f":
        return end
    opened = view.text.rfind("(", start, end)
    if opened <= start or view.text.find(")", opened, end) >= 0:
        return end
    return opened if view.source[view.back(opened, opened + 1)[0]] == "（" else end


def trim_end(text: str, start: int, end: int) -> int:
    """The end of the value without punctuation of the sentence or the syntax around it."""
    if _CUTTING.search(text, start, end):
        # Checked a little beyond the end: the text after a semicolon decides whether the value continues.
        cut = _CUT.search(text, start, end + 32)
        if cut is not None and cut.start() < end:
            end = cut.start()
    while end > start and text[end - 1] in ".,;:":
        end -= 1
    return end


def is_blank(value: str) -> bool:
    """Whether the value is a stand-in: stars, a variable, a lookup, a template field."""
    if value.lower() in _STAND_INS or _BLANK.fullmatch(value) or _LOOKUP.match(value):
        return True
    return _HOLE.search(value, 0, _JUDGED) is not None


def is_other_data(value: str) -> bool:
    """Whether the value is an address or the rest of one, a date, a range of numbers or a version."""
    return any(form.fullmatch(value) for form in (_MAIL, _DATE, _V6))


def is_one_time_code(view: FoldedText, name: int, value: str) -> bool:
    """Whether the value of the name at `name` is a one-time code: it expires before it can be misused."""
    return value.isdigit() and _ONE_TIME.search(view.text, max(0, name - 12), name) is not None


def is_fingerprint(value: str) -> bool:
    """Whether the value has the form of a UUID or a hash."""
    return _UUID.fullmatch(value) is not None


def is_varied(value: str) -> bool:
    """Whether a value is more than words: it has a digit, a special character, or inner capitals."""
    if any(map(str.isdigit, value)):
        return len(value) >= 4
    return has_capitals_inside(value) or any(char in "!@#$%^&*+=?~" for char in value.rstrip("!?"))


def is_slug(value: str) -> bool:
    """Whether a value consists of words and numbers, like names of stored items: theme_v2, user:42:v3."""
    return _SLUG.fullmatch(value) is not None


def has_special_character(value: str) -> bool:
    """Whether the value has a character that words and names do not have."""
    return any(char in "!@#$%^&*+=?~" for char in value)


def has_capitals_inside(value: str) -> bool:
    """Whether capitals and lower case are mixed unlike in a word."""
    return _CAMEL.search(value) is not None


def is_keylike(value: str, least: int) -> bool:
    """Long enough, with letters and digits mixed (or inner capitals in a long one), and many different characters."""
    value = value[:_JUDGED]
    if len(value) < least or " " in value or len(set(value)) < 4 or not any(map(str.isalpha, value)):
        return False
    return any(map(str.isdigit, value)) or (len(value) >= 16 and has_capitals_inside(value))
