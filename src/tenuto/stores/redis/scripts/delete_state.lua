-- Remove one value. KEYS: values, names in order. ARGV: drawer and name.
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
