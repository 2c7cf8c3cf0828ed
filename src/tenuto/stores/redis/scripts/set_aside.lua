-- Move a session that cannot be read out of the way, with the reason; nothing of it is lost.
-- KEYS: the session's keys, as many names to keep them under, and one for the note. ARGV: time, reason, stamp.
-- Only what still bears the stamp goes: another process may have done it, and a fresh session may stand here now.
local seen = redis.pcall('HGET', KEYS[1], 's')
if (type(seen) == 'string' and seen or '') ~= ARGV[3] then return 0 end
local count = (#KEYS - 1) / 2
local kept = 0
for i = 1, count do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('RENAME', KEYS[i], KEYS[count + i])
    redis.call('PERSIST', KEYS[count + i])
    kept = kept + 1
  end
end
if kept > 0 then redis.call('HSET', KEYS[#KEYS], 'format', 1, 'time', ARGV[1], 'reason', ARGV[2]) end
return kept
