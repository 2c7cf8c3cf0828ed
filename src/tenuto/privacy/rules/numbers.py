"""Numbers in runs of digits: each rule claims its groups, the surest first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter

from tenuto.privacy.rules.cards import SHORTEST_CARD, find_cards
from tenuto.privacy.rules.digit_runs import DigitRun, runs
from tenuto.privacy.rules.folding import FoldedText
from tenuto.privacy.rules.identity_numbers import SHORTEST_ID, SOCIAL_SECURITY, find_ibans, find_resident_ids, find_ssns
from tenuto.privacy.rules.phones import NOWHERE, find_phones
from tenuto.privacy.rules.prechecks import has_numbers
from tenuto.privacy.rules.span import Find, PiiRule


def find_numbers(view: FoldedText, found: list[Find]) -> Iterator[Find]:
    """Every number outside `found`, which are the finds of surer rules."""
    if not has_numbers(view):
        return
    yield from find_ibans(view)
    previous = NOWHERE
    # No span of this family covers a later run, so only earlier spans are checked.
    surer = found.copy()
    for run in runs(view):
        if surer and _claim_surer(run, surer):
            continue
        yield from _find_identity_numbers(run)
        for place in find_phones(run, previous):
            previous = place
            yield *place, PiiRule.PHONE


def _claim_surer(run: DigitRun, surer: list[Find]) -> bool:
    """Claim the groups inside spans of a surer family; whether one of those has the whole run."""
    first, last = run.starts[0], run.ends[-1]
    for at in range(max(0, bisect_left(surer, first, key=itemgetter(1)) - 1), len(surer)):
        start, end, _ = surer[at]
        if start >= last:
            break
        if start <= first and last <= end:
            return True
        run.claim(bisect_left(run.starts, start), bisect_left(run.ends, end + 1) - 1)
    return False


def _find_identity_numbers(run: DigitRun) -> Iterator[Find]:
    for first, last, tail in find_resident_ids(run) if run.total >= SHORTEST_ID else ():
        yield run.starts[first], run.ends[last] + tail, PiiRule.CN_ID
    for first, last, rule in find_cards(run) if run.total >= SHORTEST_CARD else ():
        run.claim(first, last)
        yield run.starts[first], run.ends[last], rule
    for first, last in find_ssns(run) if run.total >= SOCIAL_SECURITY else ():
        yield run.starts[first], run.ends[last], PiiRule.SSN
