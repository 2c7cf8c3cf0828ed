-- Set values with their versions, as another store held them.
-- KEYS: values, names in order, drawers. ARGV: drawer and name, value, drawer, its note, in turn for each.
for i = 1, #ARGV, 4 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('ZADD', KEYS[2], 0, ARGV[i])
  redis.call('HSET', KEYS[3], ARGV[i + 2], ARGV[i + 3])
end
return #ARGV
