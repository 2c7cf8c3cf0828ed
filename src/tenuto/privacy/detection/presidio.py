"""A client of Presidio's analyzer over HTTP: it finds names and places, which our rules cannot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Final, NoReturn
from urllib.parse import urlsplit

import httpx
import msgspec

from tenuto.errors import InvalidSetting, Unavailable
from tenuto.model.privacy import PiiMatch
from tenuto.model.scope import Scope
from tenuto.privacy.rules.span import PiiType

_WHAT: Final = "external detector"
_MOST_BYTES: Final = 1 << 20
"""An answer has about a hundred bytes for each match; a longer one is refused."""
_HALF: Final = re.compile("[\ud800-\udfff]")
"""A lone surrogate cannot be sent."""

# Only what our rules do not find: the service's phones and cards would add false positives.
SEEN_BY_PRESIDIO: Final[Mapping[str, PiiType]] = MappingProxyType(
    {"PERSON": PiiType.PERSON, "LOCATION": PiiType.ADDRESS}
)


class _Entity(msgspec.Struct, frozen=True):
    """One match in an answer; other fields are ignored."""

    entity_type: str
    start: int
    end: int
    score: float


_ANSWER: Final = msgspec.json.Decoder(list[_Entity])


class PresidioDetector:
    """A `Detector` that asks a Presidio analyzer. Close it when done.

    `types` maps its entities to our types; others are not requested. Matches with a score below `least_score` are left
    out. The operator of the service can read the texts.

    Raises:
        InvalidSetting: the address, a type or the score is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: timedelta = timedelta(seconds=2),
        types: Mapping[str, str] = SEEN_BY_PRESIDIO,
        least_score: float = 0.5,
        connections: int = 8,
    ) -> None:
        _check_options(url, types, least_score)
        self._types = dict(types)
        self._least_score = least_score
        self._client = httpx.AsyncClient(
            base_url=url.rstrip("/") + "/",
            timeout=timeout.total_seconds(),
            limits=httpx.Limits(max_connections=connections),
            # Neither through a proxy, nor after a redirect: texts go to the configured address only.
            trust_env=False,
            follow_redirects=False,
        )

    async def find(self, scope: Scope, text: str, language: str) -> Sequence[PiiMatch]:
        """Send the text, and nothing of the scope.

        Raises:
            Unavailable: no answer, or not one of Presidio.
        """
        query = {
            "text": _HALF.sub("?", text),
            "language": language,
            "entities": list(self._types),
            "score_threshold": self._least_score,
        }
        try:
            return self._parse_answer(await self._post(msgspec.json.encode(query)), len(text))
        # Without the cause, which may quote the text or the answer.
        except (httpx.HTTPError, httpx.StreamError):
            raise Unavailable(_WHAT) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Unavailable(_WHAT, "did not answer as Presidio does") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        async with self._client.stream("POST", "analyze", content=body, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                _raise_unavailable(f"answered with the status {response.status_code}")
            answer = bytearray()
            async for some in response.aiter_bytes():
                answer += some
                if len(answer) > _MOST_BYTES:
                    _raise_unavailable("answered with more than is read")
            return bytes(answer)

    def _parse_answer(self, answer: bytes, length: int) -> list[PiiMatch]:
        entities = _ANSWER.decode(answer)
        # One offset outside the text means that the service counts in other units: no offset can be trusted.
        if not all(0 <= entity.start < entity.end <= length for entity in entities):
            _raise_unavailable("answered with positions outside the text")
        return [
            PiiMatch(start=one.start, end=one.end, type=kind, rule=f"PRESIDIO_{one.entity_type}", name=kind)
            for one in entities
            if (kind := self._types.get(one.entity_type)) is not None and one.score >= self._least_score
        ]


def _raise_unavailable(why: str) -> NoReturn:
    raise Unavailable(_WHAT, why)


def _check_options(url: str, types: Mapping[str, str], least_score: float) -> None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
        sound = sound and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:
        raise InvalidSetting("privacy_detector", "is not an address like http://127.0.0.1:5002")
    if not types or any(kind not in PiiType.__members__ for kind in types.values()):
        raise InvalidSetting("types", f"names no type of tenuto; expected some of {', '.join(PiiType)}")
    if not 0 <= least_score <= 1:
        raise InvalidSetting("least_score", "must lie between 0 and 1")
