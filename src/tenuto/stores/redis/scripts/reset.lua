-- needs: head write
-- Forget messages, context, metadata and idempotency keys; title, attributes, totals and marks stay.
local head, why = reach()
if not head then return why end
redis.call('UNLINK', LOG, KEYED, ORDER)
head.keyed = 0
head.lease, head.lease_until, head.lease_key, head.closed = '', '', '', ''
head.window = head.seq + 1
if head.vars ~= '' then
  for _, name in ipairs(redis.call('HKEYS', VARS)) do
    if string.sub(name, 1, 1) ~= 'a' then redis.call('HDEL', VARS, name) end
  end
end
changed(head)
return { 'ok', told(head) }
