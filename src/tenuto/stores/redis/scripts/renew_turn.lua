-- Hold the lease for as long again.
-- include: head
local incarnation, turn = ARGV[6], ARGV[7]
local _, lease_until = struct.unpack('>i8i8', ARGV[5])
local raw, born, lease = unpack(call('HMGET', HEAD, 's', 'i', 'l'))
-- include: check
if answer then return answer end
if born ~= incarnation or n[LEASE_UNTIL] < 0 or string.sub(lease or '', 1, #turn + 1) ~= turn .. '\0' then
  return { 'lost' }
end
n[LEASE_UNTIL] = lease_until
call('HSET', HEAD, 's', struct.pack(LAYOUT, unpack(n)) .. owner)
return { 'ok' }
