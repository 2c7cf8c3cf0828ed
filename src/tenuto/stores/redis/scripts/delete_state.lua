-- Remove one value, and with a drawer's last one its note.
-- KEYS: values, names in order, drawers. ARGV: drawer and name, drawer.
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('ZLEXCOUNT', KEYS[2], '[' .. ARGV[2], '(' .. ARGV[2] .. '\255') == 0 then
  redis.call('HDEL', KEYS[3], ARGV[2])
end
return redis.call('HDEL', KEYS[1], ARGV[1])
