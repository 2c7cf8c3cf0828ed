"""What a visitor asks of the place today: whether it is open, what may be done there, what is to be had.

"Do you sell salt?" asks about this place and this day; a tale in which somebody once sold salt does not answer it (C1).
"""

from __future__ import annotations

import re
from typing import Final

from tenuto.model.expression import expression

# Asking somebody to tell is no question about what may be done.
_TO_TELL: Final = r"(?!.{0,20}\b(?:tell|know|explain|show|say|describe|recommend|hear)\b)"
_VISITOR: Final = expression(
    rf"\b(?:can|could|may|might|must|should|do|did|will|where can|how can) (?:i|we|my \w+|one)\b{_TO_TELL}"
    rf"|\b(?:do|are|can|will) you\b{_TO_TELL}|\byour\b|\b(?:allowed|for sale|available)\b"
    r"|(?:能|可以|可不可以|允许)(?!.{0,4}[讲说告介解]).{0,12}(?:吗|(?<![什怎])么|不\W*$)|[你您]们(?!.{0,4}(?:知道|讲|说))|我们?(?:能|可以|想)"
    r"|(?:能|可以)(?:买|住|吃|停)",
    re.IGNORECASE,
)
_ENTERING: Final = expression(
    r"\b(?:come|enter|arrive|get in|go in|go there|drop (?:in|by)|stop by)\b|进去|进来|进(?!士)|[来去](?=[看吗]|\W*$)",
    re.IGNORECASE,
)
_WHETHER: Final = expression(
    r"^\W*+(?:(?:so|and|but|then|well|please|excuse me)\b\W*+)?"
    rf"(?:is|are|was|were|do|does|did|has|have|had|can|could|may|might|will|would|should)\b(?!n't\b){_TO_TELL}"
    r"(?!.*\b(?:who|what|when|where|which|why|how)\b)"
    r"|(?:吗|(?<![什怎])么|对吧|是吧|没有|了没)\W*$|是不是|能不能|可不可以|会不会|是否",
    re.IGNORECASE,
)


def of_a_visitor(question: str) -> bool:
    """Whether it asks what a visitor may do or get here."""
    return _VISITOR.search(question) is not None


def whether(question: str) -> bool:
    """Whether the answer would be yes or no."""
    return _WHETHER.search(question) is not None


def as_a_visit(words: str) -> str:
    """The words with coming and going in called a visit: that is what a place tells of."""
    return _ENTERING.sub(lambda entering: "visit" if entering[0].isascii() else "参观", words)
