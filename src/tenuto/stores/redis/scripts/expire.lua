-- needs: head
-- Remove the session if its retention is over; say when to look again if it is not. ARGV: the facts expected.
local moment = now
caller, now = '', -1
local got, n = reach()
if not got then return n end
if got[3] ~= ARGV[6] then return { 'absent' } end
if n[EXPIRES] >= 0 and n[EXPIRES] <= moment then
  call('UNLINK', unpack(KEYS))
  return { 'gone', got[2] }
end
n[INDEXED] = n[EXPIRES]
call('HSET', HEAD, 's', struct.pack(LAYOUT, unpack(n, 1, 24)))
return { 'kept', n[EXPIRES] }
