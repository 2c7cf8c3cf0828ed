-- Entries of a part, with the revision they are of. KEYS: the record and the stem of its entries.
-- ARGV: the part, the first and the last number, and how many; with a negative limit the last ones, in descending order.
local revision = redis.call('HGET', KEYS[1], 'n')
if not revision then return false end
local entries, limit = KEYS[2] .. ':' .. ARGV[1], tonumber(ARGV[4])
if limit >= 0 then
  return {revision, redis.call('ZRANGEBYSCORE', entries, ARGV[2], ARGV[3], 'LIMIT', 0, limit)}
end
return {revision, redis.call('ZREVRANGEBYSCORE', entries, ARGV[3], ARGV[2], 'LIMIT', 0, -limit)}
