"""Where a full stop ends a sentence, and where an abbreviation: "Dr. Lee", "at 9 a.m. on Friday", "5 Elm St. It is"."""

from __future__ import annotations

import re
from typing import Final

from tenuto.model.expression import expression

# How much before and behind a stop is looked at.
_LOOK_AT: Final = 40
# Stands before a name; so does an initial. In an address "St." and "Dr." stand behind one.
_TITLE: Final = expression(r"(?:\b(?i:mr|mrs|ms|dr|prof|rev|capt|sgt|lt|st|mt|ft)|(?<![\w.'’])[A-HJ-Z])\.$")
_ADDRESS: Final = expression(r"\d[\w-]*(?: [\w'’-]+){1,3} (?:st|dr)\.$", re.IGNORECASE)
_SHORTENED: Final = expression(
    r"(?:\b(?i:(?:[a-z]\.)+[a-z]|ph\.d|etc|vs|approx)"
    r"|\b(?:Inc|Ltd|Co|Corp|Jr|Sr|Ave|Rd|Blvd|Apt|Jan|Feb|Mar|Apr|Aug|Sept?|Oct|Nov|Dec|Mon|Tues?|Wed|Thurs?|Fri))\.$"
)
_NUMBER: Final = expression(r"\bno\.$", re.IGNORECASE)
# Words that begin a sentence and follow no abbreviation.
_BEGINS: Final = expression(
    r"(?:i|my|mine|we|our|you|your|he|his|she|her|it|its|they|their|the|this|that|these|those|there|what|where|who|when"
    r"|how|why|which|can|could|would|will|should|do|does|did|is|are|please|also|so|but|then|thanks|yes)\b",
    re.IGNORECASE,
)
_DAY: Final = expression(
    r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May|June|July|August|September|October"
    r"|November|December"
)


def ends_sentence(text: str, stop: int) -> bool:
    """Whether the full stop at this place ends its sentence."""
    before, behind = text[max(0, stop - _LOOK_AT) : stop + 1], text[stop + 1 : stop + _LOOK_AT].lstrip()
    if not behind or _BEGINS.match(behind):
        return True
    if _NUMBER.search(before):
        return not behind[0].isdigit()
    if _TITLE.search(before) and not _ADDRESS.search(before):
        return False
    if _SHORTENED.search(before) or _ADDRESS.search(before):
        return behind[0].isupper() and _DAY.match(behind) is None
    return True
