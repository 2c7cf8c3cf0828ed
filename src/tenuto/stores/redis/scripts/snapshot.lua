-- needs: head
-- What a fork copies: the head, and the log up to a sequence number.
local at = take()
local head, why = reach()
if not head then return why end
return { 'ok', told(head), redis.call('ZRANGE', LOG, '-inf', at == '' and '+inf' or at, 'BYSCORE') }
