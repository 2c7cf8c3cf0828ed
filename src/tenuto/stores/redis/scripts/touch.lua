-- Moves a deadline forwards. KEYS: the record. ARGV: the deadline.
local deadline = redis.call('HGET', KEYS[1], 'd')
if deadline and deadline ~= '' and tonumber(deadline) < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'd', ARGV[1])
end
return 1
