-- Remove the session if its retention is over; say when to look again if it is not. ARGV: the facts expected.
-- include: head
local moment = now
caller, now = '', -1
-- include: reach
if facts ~= ARGV[6] then return { 'absent' } end
if n[EXPIRES] >= 0 and n[EXPIRES] <= moment then
  call('UNLINK', unpack(KEYS))
  -- include: gone
  return { 'gone', owner }
end
n[INDEXED] = n[EXPIRES]
call('HSET', HEAD, 's', struct.pack(LAYOUT, unpack(n)) .. owner)
return { 'kept', n[EXPIRES] }
