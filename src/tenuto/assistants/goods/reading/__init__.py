"""From a question to what it asks of the shop, by rules, in English and Chinese.

`question` tells which kind of question a text is; each kind has a file of its own: `search`, `details`, `orders`,
`courtesy`. `wording` reads what a search says by itself, by its parts: bounds, prices, sizes and ages, negations,
alternatives, order. The room knows no catalogue: whether there are such goods is found out later.
"""

from tenuto.assistants.goods.intent import MAX_READ
from tenuto.assistants.goods.reading.question import Question, folded_question, guessed, read, understand

__all__ = [
    "MAX_READ",
    "Question",
    "folded_question",
    "guessed",
    "read",
    "understand",
]
