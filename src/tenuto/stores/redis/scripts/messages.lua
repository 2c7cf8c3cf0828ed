-- needs: head lasting read
-- A page of the log: the newest, or those next before or after a sequence number.
local _, limit, before, after = struct.unpack('>i8i8i8i8', ARGV[5])
local got, n = reach()
if not got then return n end
local numbers = touched(n, got[1])
local found, beyond
if after >= 0 then
  found = call('ZRANGEBYSCORE', LOG, string.format('(%.0f', after), '+inf', 'LIMIT', 0, limit + 1)
  beyond = call('ZCOUNT', LOG, 1, after)
else
  local top = before < 0 and '+inf' or string.format('(%.0f', before)
  found = call('ZREVRANGEBYSCORE', LOG, top, 1, 'LIMIT', 0, limit + 1)
  beyond = before < 0 and 0 or call('ZCOUNT', LOG, math.max(1, before), '+inf')
end
return { 'ok', numbers, got[3], got[4], variables(n), 0, found, beyond }
