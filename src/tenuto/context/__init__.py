"""What the model sees: token counts, the window, the budget, layouts and the account of it all. Pure: no I/O."""

from tenuto.context.assembly import LEAST_QUESTION, assemble, check_budget, last_words, materials_of, room_of
from tenuto.context.cutting import cut
from tenuto.context.layout import agent_system, profile_text
from tenuto.context.relevance import cosine, has_relevant_history, near_enough, points_back, spoken, term_coverage
from tenuto.context.tokens import DEFAULT_ENCODING, ENCODINGS, Counter, counter_for, encoding_for
from tenuto.context.wording import language_of
from tenuto.model.graphemes import boundary_after, boundary_before

__all__ = [
    "DEFAULT_ENCODING",
    "ENCODINGS",
    "LEAST_QUESTION",
    "Counter",
    "agent_system",
    "assemble",
    "boundary_after",
    "boundary_before",
    "check_budget",
    "cosine",
    "counter_for",
    "cut",
    "encoding_for",
    "has_relevant_history",
    "language_of",
    "last_words",
    "materials_of",
    "near_enough",
    "points_back",
    "profile_text",
    "room_of",
    "spoken",
    "term_coverage",
]
