"""Records in Redis or Valkey."""

from tenuto.stores.engine.redis.records import RedisRecords

__all__ = ["RedisRecords"]
