"""An external detector with a script, beside our own rules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from tenuto.model.privacy import PiiMatch
from tenuto.model.scope import Scope
from tenuto.ports import Detector
from tenuto.privacy.detection.external import ExternalDetector, ExternalDetectorPolicy
from tests.clock import Ticks


class ScriptedDetector:
    """A detector that finds given words as persons, records its requests, and fails on demand."""

    def __init__(self, *words: str, kind: str = "PERSON") -> None:
        self._words, self._kind = words, kind
        self.shown: list[tuple[str, str]] = []
        self.fails: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.entered = asyncio.Event()
        self.inside = self.most_inside = 0

    async def find(self, scope: Scope, text: str, language: str) -> Sequence[PiiMatch]:
        self.shown.append((text, language))
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            # Let the other requests begin, as far as they may.
            await asyncio.sleep(0)
            if self.gate is not None:
                self.entered.set()
                await self.gate.wait()
            if self.fails is not None:
                raise self.fails
        finally:
            self.inside -= 1
        return [
            PiiMatch(start=at, end=at + len(word), type=self._kind, rule="SCRIPTED", name=self._kind)
            for word in self._words
            for at in range(len(text))
            if text.startswith(word, at)
        ]


LONG_TIMEOUT = timedelta(seconds=30)


def external_detector(detector: Detector, clock: Ticks | None = None, **policy: object) -> ExternalDetector:
    chosen = ExternalDetectorPolicy(**{"timeout": LONG_TIMEOUT, **policy})  # type: ignore[arg-type]  # the settings of one test
    return ExternalDetector(detector, policy=chosen, clock=clock or Ticks())
