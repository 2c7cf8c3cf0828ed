"""Names in stored JSON outlive a rename in the code: old rows, traces and journals stay readable."""

from __future__ import annotations

import msgspec
import pytest

from tenuto.model import BeginTurn, Draft, FinishTurn, Message, NewSession, Retention, Scope, Session
from tenuto.model.prompt import Manifest, ManifestEntry
from tenuto.model.turn import Trace
from tenuto.stores.journaled.rows import JournaledBegin, JournalRow, ReplicaOrigin

STORED: dict[type[msgspec.Struct], str] = {
    Scope: "tenant site user channel chat thread persona visitor",
    Draft: "id role sent_at parts speaker persona parent tokens metadata extra",
    Message: "id role sent_at parts speaker persona parent tokens metadata extra seq turn",
    Retention: "idle touch max_messages max_turns",
    NewSession: "keeping title context attributes metadata",
    Session: "id scope incarnation created_at updated_at expires_at keeping version title status context attributes"
    " metadata turns messages last_seq window_start tokens cost_nanos forked_from",
    BeginTurn: "session_id turn_id words create keeping lease window once producer journaled",
    FinishTurn: "reply usage changes trace producer abandoned",
    Trace: "id session_id turn_id number began_at assistant persona speaker request answer model offline manifest tools"
    " steps input_tokens output_tokens cost_nanos degraded error data redacted",
    Manifest: "entries total room budget reply encoding exact margin layout",
    ManifestEntry: "kind fate reason tokens whole id first last count",
    ReplicaOrigin: "head tail opened_by blind",
    JournaledBegin: "scope opening origin number begun_at since there asked last_word",
    JournalRow: "slot number session tenant site persons begun_at beginning closing incarnation tried",
}


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: kind.__name__)
def test_stored_fields_keep_their_names(kind: type[msgspec.Struct]) -> None:
    assert set(STORED[kind].split()) <= set(kind.__struct_encode_fields__)
