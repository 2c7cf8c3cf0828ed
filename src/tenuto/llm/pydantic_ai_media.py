"""Pictures, sounds and files for Pydantic AI: which ones a model takes, and how they are sent.

A link is sent as it is. Where Pydantic AI would download it for a provider that takes no links, the model counts as one
that does not take it: this process fetches no address that a caller names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from pydantic_ai.messages import AudioUrl, BinaryContent, DocumentUrl, ImageUrl, MultiModalContent, UploadedFile
from pydantic_ai.models import Model

from tenuto.llm.openai_models import FILE_NAME
from tenuto.llm.provider_parameters import Dialect
from tenuto.model.attachment import ATTACHMENT, AUDIO, FILE, FILE_ID, IMAGE, PDF, URL, Content, MediaInputs
from tenuto.model.attachment import media_type_of as type_of
from tenuto.model.values import JsonObject

_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_SOUNDS: Final = frozenset({"audio/wav", "audio/x-wav", "audio/wave", "audio/mpeg", "audio/mp3"})
_TEXTS: Final = frozenset({"text/plain", "text/markdown", "text/csv", "text/html"})
# Names that Pydantic AI does not know for the two formats that models hear.
_SOUND_NAMES: Final = {"audio/x-wav": "audio/wav", "audio/wave": "audio/wav", "audio/mp3": "audio/mpeg"}
# Models that read text alone, and of which no profile says so.
_READS_TEXT: Final = re.compile(
    r"(?:.*/)?(?:gpt-3\.5|gpt-4(?:-\d|-32k|$)|gpt-oss|o1-mini|o1-preview|o3-mini|gpt-audio|gpt-4o(?:-mini)?-audio|deepseek)"
)
_LINKS: Final = {
    Dialect.OPENAI_CHAT: frozenset({IMAGE}),
    Dialect.OPENAI_RESPONSES: frozenset({IMAGE, FILE}),
    Dialect.ANTHROPIC: frozenset({IMAGE, FILE}),
}
_FILES: Final = {
    # A chat completion names a picture by its link alone.
    Dialect.OPENAI_CHAT: frozenset({FILE}),
    Dialect.OPENAI_RESPONSES: frozenset({IMAGE, FILE}),
    Dialect.ANTHROPIC: frozenset({IMAGE, FILE}),
}


def media_of(name: str, model: Model, dialect: Dialect, *, reads_documents: bool) -> MediaInputs:
    """What a model takes, as its profile says and its API allows."""
    profile = model.profile
    provider, _, short = name.partition(":") if ":" in name else ("", "", name)
    content: set[str] = set()
    sees = profile.get("supports_image_input", True) and not _READS_TEXT.match(short)
    if sees:
        content |= _IMAGES
    if dialect is Dialect.OPENAI_CHAT and "audio" in short:
        content |= _SOUNDS
    elif dialect is Dialect.OTHER and profile.get("supports_audio_file_input", True):
        content.add("audio/*")
    if profile.get("supports_document_input", True):
        documents = frozenset[str](profile.get("supported_document_media_types", _TEXTS | {PDF}))
        content |= documents & _TEXTS if not (sees and reads_documents) else documents & (_TEXTS | {PDF})
    links = _LINKS.get(dialect, frozenset()) if sees else frozenset[str]()
    files = _FILES.get(dialect, frozenset()) if sees else frozenset[str]()
    return MediaInputs(
        content=frozenset(content),
        links=links if reads_documents else links - {FILE},
        files=files,
        provider=provider.removesuffix("-chat").removesuffix("-responses"),
    )


def to_contents(
    parts: Iterable[JsonObject], contents: Mapping[str, Content], provider: str
) -> Iterator[str | MultiModalContent]:
    """Texts, pictures, sounds and files in their order; what lacks its bytes was replaced before this."""
    for part in parts:
        if part["type"] == "text":
            if part["text"]:
                yield part["text"]
        elif (content := _to_content(part, contents, provider)) is not None:
            yield content


def _to_content(part: JsonObject, contents: Mapping[str, Content], provider: str) -> MultiModalContent | None:
    media_type = type_of(part)
    metadata: dict[str, Any] | None = {"detail": part["detail"]} if "detail" in part else None
    if FILE_ID in part:
        kind = media_type or ("image/png" if part["type"] == IMAGE else None)
        # The type lists providers; the name is the model's own.
        return UploadedFile(part[FILE_ID], cast(Any, provider), media_type=kind, vendor_metadata=metadata)
    if URL in part:
        match part["type"]:
            case "image":
                return ImageUrl(part[URL], media_type=media_type or "image/png", vendor_metadata=metadata)
            case "audio":
                return AudioUrl(part[URL], media_type=media_type or "audio/wav")
            case _:
                return DocumentUrl(part[URL], media_type=media_type or PDF)
    content = contents.get(part.get(ATTACHMENT, ""))
    if content is None:
        return None
    if part["type"] == FILE and isinstance(part.get("name"), str):
        metadata = {FILE_NAME: part["name"]}
    kind = _SOUND_NAMES.get(media_type, media_type) if part["type"] == AUDIO else media_type
    return BinaryContent(content.data, media_type=kind, vendor_metadata=metadata)
