-- needs: head
-- A page of the log: the newest, or those next before or after a sequence number.
local limit, before, after = tonumber(take()), take(), take()
local head, why = reach()
if not head then return why end
touch(head)
local found, beyond
if after ~= '' then
  found = redis.call('ZRANGE', LOG, '(' .. after, '+inf', 'BYSCORE', 'LIMIT', 0, limit + 1)
  beyond = redis.call('ZCOUNT', LOG, '-inf', after)
else
  local top = before == '' and '+inf' or '(' .. before
  found = redis.call('ZRANGE', LOG, top, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, limit + 1)
  beyond = before == '' and 0 or redis.call('ZCOUNT', LOG, before, '+inf')
end
return { 'ok', told(head), found, beyond }
