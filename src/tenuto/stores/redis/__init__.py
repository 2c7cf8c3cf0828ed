"""Records in Redis or Valkey: standalone, behind Sentinel, or as a Cluster."""

from tenuto.stores.redis._auth import ConnectionPolicy
from tenuto.stores.redis.records import RedisRecords

__all__ = ["ConnectionPolicy", "RedisRecords"]
