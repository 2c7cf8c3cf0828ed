"""Redis and Valkey: standalone, behind Sentinel, or as a Cluster."""

from tenuto.stores.redis._auth import ConnectionPolicy
from tenuto.stores.redis.store import RedisStore

__all__ = ["ConnectionPolicy", "RedisStore"]
