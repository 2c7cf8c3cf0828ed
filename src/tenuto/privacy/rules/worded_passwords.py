"""Passwords with letters beyond ASCII, and after names of passwords in further European languages.

Names of English and German, and values in ASCII after them, are found by `named_secrets`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.secret_blocks import find_block_below
from tenuto.privacy.rules.secret_values import is_blank, is_other_data, is_varied
from tenuto.privacy.rules.span import Find, PiiRule

_STEMS: Final = frozenset(
    {
        *(
            "pass",
            "pw",
            "kennwort",
            "contrase?a",
            "contrasenya",
            "wachtwoord",
            "senha",
            "clave",
            "salasana",
            "mdp",
            "parola",
        ),
        *("adgangskode", "heslo", "has?o", "l?senord", "jelsz?", "?ifre", "schl?ssel"),
    }
)
_NAME: Final = lazy_pattern(
    r"(?P<common>passwor[dt]|passphrase|kennwort|(?<![^\W_])(?:pwd|pw))"
    r"|mot de passe|motdepasse|palavra-passe|contraseña|contrasenya|wachtwoord|passord|adgangskode|lösenord|jelszó"
    r"|hasło|salasana|пароль|(?:wlan|wifi|netzwerk)[ -]?schlüssel|(?<![^\W_])(?:senha|clave|mdp|heslo|şifre|parola)",
    re.IGNORECASE,
)
_LINK: Final = lazy_pattern(
    r"""(?:[ ][^\W\d_]{1,12}){0,3}?["'`*]{0,2}(?:[ \t\u00a0]{0,2}(?:[:=]|->|=>)[ \t]{0,3}\n?[ \t]{0,4}
        |[ ](?:ist|is|est|es|é|è|jest|je|är|er|on|lautet|era|war|était)[ ](?:jetzt[ ]|nun[ ]|:[ ])?)
    ["'`“„«]?[ ]?(?P<value>[^\s"'`“”„«»<>|]{4,64})""",
    re.VERBOSE | re.IGNORECASE,
)
_LONGEST: Final = 140
_LETTER: Final = lazy_pattern(r"[^\W\d_]")
# In Chinese, Japanese and Korean a sentence continues without a space.
_NO_SPACES: Final = lazy_pattern("[\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]")


def has_worded_passwords(view: FoldedText) -> bool:
    """Whether a name of a password occurs that this rule knows."""
    if not view.stems.isdisjoint(_STEMS):
        return True
    return view.signed and "ароль" in view.text


def find_worded_passwords(view: FoldedText) -> Iterator[Find]:
    """Every such password. It has a digit or a special character: words alone may belong to the sentence."""
    for name in _NAME.finditer(view.text):
        block = None if name["common"] else find_block_below(view, *name.span())
        if block is not None:
            yield *block, PiiRule.PASSWORD
            continue
        link = _LINK.match(view.text, name.end(), name.end() + _LONGEST)
        if link is None:
            continue
        value = link["value"].rstrip(".,;:)")
        if name["common"] and value.isascii():
            continue
        if _NO_SPACES.search(value) or not _LETTER.search(value) or not is_varied(value):
            continue
        if len(value) >= 4 and not is_blank(value) and not is_other_data(value):
            start = link.start("value")
            yield start, start + len(value), PiiRule.PASSWORD
