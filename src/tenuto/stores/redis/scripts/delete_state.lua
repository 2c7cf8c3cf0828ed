-- Remove one value of a drawer. KEYS: values, names in order. ARGV: name.
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
