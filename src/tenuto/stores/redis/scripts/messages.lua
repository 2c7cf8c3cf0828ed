-- A page of the log: the newest, or those next before or after a sequence number.
-- include: head
local _, limit, before, after, touches = struct.unpack('>i8i8i8i8i8', ARGV[5])
-- include: reach
if touches == 0 then n[IDLE] = -1 end -- Nothing below writes it back.
-- include: touch
local found, beyond
if after >= 0 then
  found = call('ZRANGEBYSCORE', LOG, string.format('(%.0f', after), '+inf', 'LIMIT', 0, limit + 1)
  beyond = call('ZCOUNT', LOG, 1, after)
else
  local top = before < 0 and '+inf' or string.format('(%.0f', before)
  found = call('ZREVRANGEBYSCORE', LOG, top, 1, 'LIMIT', 0, limit + 1)
  beyond = before < 0 and 0 or call('ZCOUNT', LOG, math.max(1, before), '+inf')
end
-- include: variables
return { 'ok', numbers, facts, title, variables, found, beyond }
