-- Take a session off a shelf if it still stands where it was seen. KEYS: shelf. ARGV: session key, place.
if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '') ~= tonumber(ARGV[2]) then return 0 end
return redis.call('ZREM', KEYS[1], ARGV[1])
