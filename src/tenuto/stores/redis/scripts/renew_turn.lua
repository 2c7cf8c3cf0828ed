-- needs: head
-- Hold the lease for as long again.
local incarnation, turn = ARGV[6], ARGV[7]
local _, lease_until = struct.unpack('>i8i8', ARGV[5])
local got, n = reach('i', 'l')
if not got then return n end
if got[5] ~= incarnation or n[LEASE_UNTIL] < 0 or string.sub(got[6] or '', 1, #turn + 1) ~= turn .. '\0' then
  return { 'lost' }
end
n[LEASE_UNTIL] = lease_until
call('HSET', HEAD, 's', struct.pack(LAYOUT, unpack(n, 1, 24)))
return { 'ok' }
