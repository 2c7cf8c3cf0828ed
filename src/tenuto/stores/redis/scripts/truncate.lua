-- needs: head write once
-- Forget the messages after a sequence number, and what idempotency keys remember of them.
local after = take()
local head, why = reach()
if not head then return why end
redis.call('ZREMRANGEBYSCORE', LOG, '(' .. after, '+inf')
local keyed = head.keyed > 0 and redis.call('HGETALL', KEYED) or {}
for i = 1, #keyed, 2 do
  local record = read_keyed(keyed[i + 1])
  if not record or record.first > tonumber(after) then
    redis.call('HDEL', KEYED, keyed[i])
    redis.call('ZREM', ORDER, keyed[i])
  elseif record.finished and record.reply_last > tonumber(after) then
    record.finished, record.reply_first, record.reply_last = false, 0, -1
    write_keyed(keyed[i], record)
  end
end
head.lease, head.lease_until, head.lease_key, head.closed = '', '', '', ''
changed(head)
return { 'ok', told(head) }
