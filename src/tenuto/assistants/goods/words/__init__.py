"""What goods, amounts and money are called in English and Chinese.

The words are those of every shop: this room knows no question and no catalogue, and both are read by it.
"""

from tenuto.assistants.goods.words.attributes import ASPECTS, ATTRIBUTES, MATERIALS, UNIT_NAMES
from tenuto.assistants.goods.words.categories import CATEGORIES, CATEGORY_PATTERNS, PETS, category_name, special
from tenuto.assistants.goods.words.colors import COLOR, COLOR_WORDS, COLORS, color_of
from tenuto.assistants.goods.words.currencies import CURRENCY, currency_in, means
from tenuto.assistants.goods.words.groups import KINDS, MEASURED, Group, are_rivals, of_categories, of_colors, of_words
from tenuto.assistants.goods.words.plain_english import is_plain_english
from tenuto.assistants.goods.words.small_words import IN_NAMES, STOP_PHRASES, STOP_WORDS, name_in, terms_in
from tenuto.assistants.goods.words.synonyms import SYNONYMS
from tenuto.assistants.goods.words.text import HAN, cut, fold
from tenuto.assistants.goods.words.units import (
    MEASURE,
    MEMORY_AND_STORAGE,
    PLAIN,
    UNIT,
    UNITS,
    Unit,
    number,
    readings,
    term,
)

__all__ = [
    "ASPECTS",
    "ATTRIBUTES",
    "CATEGORIES",
    "CATEGORY_PATTERNS",
    "COLOR",
    "COLORS",
    "COLOR_WORDS",
    "CURRENCY",
    "HAN",
    "IN_NAMES",
    "KINDS",
    "MATERIALS",
    "MEASURE",
    "MEASURED",
    "MEMORY_AND_STORAGE",
    "PETS",
    "PLAIN",
    "STOP_PHRASES",
    "STOP_WORDS",
    "SYNONYMS",
    "UNIT",
    "UNITS",
    "UNIT_NAMES",
    "Group",
    "Unit",
    "are_rivals",
    "category_name",
    "color_of",
    "currency_in",
    "cut",
    "fold",
    "is_plain_english",
    "means",
    "name_in",
    "number",
    "of_categories",
    "of_colors",
    "of_words",
    "readings",
    "special",
    "term",
    "terms_in",
]
