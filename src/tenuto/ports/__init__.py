"""The ports: every protocol between the rooms and the outside, one file for each socket."""

from tenuto.ports.channels import Channel, FileChannel
from tenuto.ports.environment import Clock, SpanAttributes, Telemetry, utc_now
from tenuto.ports.models import (
    ChatModel,
    Embedder,
    ModelChain,
    ParameterChecker,
    facts_of,
    refused_parameters,
    time_limit,
)
from tenuto.ports.privacy import Cipher, Ciphers, Detector, Place
from tenuto.ports.records import DurabilityReport, Preparable, RecordFeed, RecordStore, Versioned
from tenuto.ports.sessions import SessionStore, TraceStore, TurnFollowUp, release_lease
from tenuto.ports.state import OwnersOf, StateStore, owner_alone
from tenuto.ports.stores import CacheCounts, ElsewhereFeed, Store, StoreUpkeep
from tenuto.ports.tasks import TaskEngine
from tenuto.ports.tools import OfflineTool, Tool
from tenuto.ports.turn_logs import LogEntry, LogPlace, TurnAddress, TurnAsks, TurnLogs

__all__ = [
    "CacheCounts",
    "Channel",
    "ChatModel",
    "Cipher",
    "Ciphers",
    "Clock",
    "Detector",
    "DurabilityReport",
    "ElsewhereFeed",
    "Embedder",
    "FileChannel",
    "LogEntry",
    "LogPlace",
    "ModelChain",
    "OfflineTool",
    "OwnersOf",
    "ParameterChecker",
    "Place",
    "Preparable",
    "RecordFeed",
    "RecordStore",
    "SessionStore",
    "SpanAttributes",
    "StateStore",
    "Store",
    "StoreUpkeep",
    "TaskEngine",
    "Telemetry",
    "Tool",
    "TraceStore",
    "TurnAddress",
    "TurnAsks",
    "TurnFollowUp",
    "TurnLogs",
    "Versioned",
    "facts_of",
    "owner_alone",
    "refused_parameters",
    "release_lease",
    "time_limit",
    "utc_now",
]
