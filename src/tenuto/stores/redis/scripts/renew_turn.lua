-- needs: head
-- Hold the lease for as long again.
local incarnation, turn, lease_until = take(), take(), take()
local head, why = reach()
if not head then return why end
if head.incarnation ~= incarnation or head.lease ~= turn then return { 'lost' } end
redis.call('HSET', HEAD, 'lease_until', lease_until)
return { 'ok' }
