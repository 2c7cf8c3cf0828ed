-- Put messages of a session that is being copied aside; they go after an hour, should the copy end before its head.
-- KEYS: staged messages. ARGV: numbers and members in turn.
redis.call('ZADD', KEYS[1], unpack(ARGV))
redis.call('EXPIRE', KEYS[1], 3600)
return 'ok'
