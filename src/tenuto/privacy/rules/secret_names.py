"""Names of secrets in English and German, but not words that begin alike: `token`, not `token_count`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.span import PiiRule
from tenuto.privacy.rules.word_tables import load_table


class Name(NamedTuple):
    """A name of a secret: where it stands, and whether it is a `password`, a `key`, or a `weak` word for one."""

    start: int
    end: int
    kind: str

    @property
    def rule(self) -> PiiRule:
        """The rule that finds its value."""
        return PiiRule.PASSWORD if self.kind == "password" else PiiRule.API_KEY


_SECRETS: Final = load_table("secrets")
_TICKETS: Final = tuple(_SECRETS["tickets"].split())
_QUALIFIERS: Final = frozenset(_SECRETS["qualifiers_of_keys"].split())
_QUALIFIERS_JOINED: Final = tuple(_QUALIFIERS)
_QUALIFIER_ENDS: Final = frozenset(qualifier[-3:] for qualifier in _QUALIFIERS)
"""Most words before "key" end differently, and are skipped."""
_LOOKUPS: Final = frozenset(_SECRETS["lookups_of_keys"].split())
_PUBLIC_KEYS: Final = ("publickey", "publickey_", "public_key_", "public key ")
_AUTH_NAMES: Final = ("rediscli_", "/:_")
OF_KEY: Final = lazy_pattern(rf"(?:{'|'.join(sorted(_QUALIFIERS))})[_ -]?\Z")
_JOINTS: Final = frozenset("_ -")
_LAST_WORD: Final = lazy_pattern(r"[a-z0-9]+\Z")
_SETS: Final = lazy_pattern(
    r"""s?(?:_?[0-9]{1,2}|_[a-z0-9]{1,10})?["'`\])]{0,2}[ \t]{0,3}(?:[:=([]|->|is |was |["'],?\s|value)"""
)
_SUFFIX: Final = lazy_pattern(
    r"(?:[_-]?(?:key|value|secret|token|prod|production|dev|staging|test|live|base64|[0-9]{1,2}|access[_-]key|string|b64|default))*"
)
# The id of a key, which identifies the account: access_key_id, private_key_id.
_KEY_ID: Final = lazy_pattern(r"(?:(?<=access.key)|(?<=accesskey)|(?<=private.key)|(?<=privatekey))[_-]?id(?![a-z])")
_GOES_ON: Final = lazy_pattern(r"[a-z]|[_-][a-z]")


def _pass_kind(lower: str, at: int) -> str | None:
    joined = at > 0 and lower[at - 1] in " -"
    return None if joined and lower.endswith(_TICKETS, max(0, at - 10), at - 1) else "password"


def _cre_kind(lower: str, at: int) -> str | None:
    return "key" if lower[at - 2 : at] == "se" else "password"


def _key_kind(lower: str, at: int, end: int = 0) -> str | None:
    end = end or at + 3
    joint = lower[at - 1 : at]
    if joint in _JOINTS:
        likely = lower[max(0, at - 4) : at - 1] in _QUALIFIER_ENDS
        qualifier = _LAST_WORD.search(lower, max(0, at - 15), at - 1) if likely else None
        if qualifier is not None and qualifier[0] in _QUALIFIERS:
            # A private key followed by dashes is the first line of a block, not a name.
            return None if lower.startswith("-----", end) else "key"
    elif joint == "?":
        return "key"  # 高德key: after a non-ASCII qualifier
    elif joint.isalpha():
        return "key" if lower[max(0, at - 14) : at].endswith(_QUALIFIERS_JOINED) else None
    # A key without a qualifier: mostly a figure of speech; only an assignment makes it a secret.
    return "weak" if _SETS.match(lower, end) and not _is_lookup_key(lower, at) else None


def _is_lookup_key(lower: str, at: int) -> bool:
    if lower[at - 1 : at] not in _JOINTS:
        return False
    whose = _LAST_WORD.search(lower, max(0, at - 17), at - 1)
    return whose is not None and whose[0] in _LOOKUPS


def _token_kind(lower: str, at: int) -> str | None:
    """The PublicKeyToken of a library is not secret."""
    return None if lower.endswith(_PUBLIC_KEYS, max(0, at - 11), at) else "key"


def _auth_kind(lower: str, at: int) -> str | None:
    return "password" if lower.endswith(_AUTH_NAMES, max(0, at - 9), at) else None


# A name is found by its stem with a fast plain search; then a regex checks it, and a function gives its kind. Secrets
# and credentials share their stem.
_Stem = tuple[re.Pattern[str], Callable[[str, int], str | None]]
STEMS: Final[dict[str, _Stem]] = {
    "pass": (
        lazy_pattern(
            # With typing errors: passwrod, passowrd, passwod.
            r"pass(?:word|wort|phrase|code|ward|[word]{3,5}|wd|w|key)s?|(?<=mot de )passe"
            r"|(?:(?<![a-z])|(?<=require)|(?<=store)|(?<=key)|(?<=db)|(?<=user)|(?<=smtp)|(?<=root)|(?<=admin))pass"
        ),
        _pass_kind,
    ),
    "pasw": (lazy_pattern(r"pasw[word]{2,4}"), lambda lower, at: "password"),
    "pw": (lazy_pattern(r"pwd|(?<![a-z])pw"), lambda lower, at: "password"),
    "psw": (lazy_pattern(r"(?<![a-z])psw[word]{0,4}"), lambda lower, at: "password"),
    "kennwort": (lazy_pattern("kennwort"), lambda lower, at: "password"),
    "cre": (lazy_pattern(r"creds?\b|credentials?|(?<=se)crets?"), _cre_kind),
    # The key of a wireless network. WPA-PSK also is the name of a method, so it counts only if a value follows.
    "psk": (lazy_pattern(r"""(?<![a-z0-9])psk(?=["'`]?[ ]?[:=]|[ ](?:is|was)[ ])"""), lambda lower, at: "password"),
    "auth": (lazy_pattern("auth(?==)"), _auth_kind),
    "token": (lazy_pattern("tokens?"), _token_kind),
    "key": (lazy_pattern("keys?"), _key_kind),
    # In the ASCII view a non-ASCII letter is a question mark.
    "schl?ssel": (lazy_pattern(r"schl\?ssel"), lambda lower, at: _key_kind(lower, at, at + 9)),
    "contrase?a": (lazy_pattern(r"contrase\?a"), lambda lower, at: "password"),
}


def find_secret_names(view: FoldedText) -> list[Name]:
    """English and German names of secrets, from left to right."""
    found: list[Name] = []
    for stem in view.stems & STEMS.keys():
        _add_secret_names(view.lower, stem, found)
    found.sort()
    return found


def _add_secret_names(lower: str, stem: str, found: list[Name]) -> None:
    pattern, kind_of = STEMS[stem]
    at = lower.find(stem)
    while at >= 0:
        kind = kind_of(lower, at)
        if kind is not None:
            match = pattern.match(lower, at)
            end = None if match is None else _secret_name_end(lower, match.end())
            if end is not None:
                found.append(Name(at - 2 if kind == "key" and stem == "cre" else at, end, kind))
        at = lower.find(stem, at + len(stem))


def _secret_name_end(lower: str, at: int) -> int | None:
    """Where the name ends, or None if the word continues as another one: `passport`, `token_count`."""
    suffix = _SUFFIX.match(lower, at)
    assert suffix is not None  # it matches the empty string
    key_id = _KEY_ID.match(lower, at)
    if key_id is not None:
        return key_id.end()
    return None if _GOES_ON.match(lower, suffix.end()) else suffix.end()
