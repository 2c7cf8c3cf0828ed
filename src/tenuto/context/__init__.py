"""What the model sees: token counts, the window, the budget, layouts and the account of it all. Pure: no I/O."""

from tenuto.context.assembly import (
    LEAST_QUESTION,
    assemble,
    check_budget,
    inputs_from_turn,
    last_input,
    last_words,
    parts_of_question,
)
from tenuto.context.layout import agent_prompt, agent_question, agent_system, profile_text
from tenuto.context.relevance import cosine, has_relevant_history, near_enough, points_back, spoken_texts, term_coverage
from tenuto.context.speakers import chat_context, display_name, speaker_names
from tenuto.context.tokens import (
    DEFAULT_ENCODING,
    ENCODINGS,
    TokenCounter,
    counter_for,
    encoding_for,
    fit_prompt,
    prompt_token_limit,
    truncate_text,
)
from tenuto.context.wording import language_of
from tenuto.model.graphemes import boundary_after, boundary_before

__all__ = [
    "DEFAULT_ENCODING",
    "ENCODINGS",
    "LEAST_QUESTION",
    "TokenCounter",
    "agent_prompt",
    "agent_question",
    "agent_system",
    "assemble",
    "boundary_after",
    "boundary_before",
    "chat_context",
    "check_budget",
    "cosine",
    "counter_for",
    "display_name",
    "encoding_for",
    "fit_prompt",
    "has_relevant_history",
    "inputs_from_turn",
    "language_of",
    "last_input",
    "last_words",
    "near_enough",
    "parts_of_question",
    "points_back",
    "profile_text",
    "prompt_token_limit",
    "speaker_names",
    "spoken_texts",
    "term_coverage",
    "truncate_text",
]
