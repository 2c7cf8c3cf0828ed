-- needs: head write once
-- Append the reply, add the usage, apply the changes, give the lease back.
local incarnation, turn, place, abandoned = take(), take(), tonumber(take()), take() == '1'
local tokens, cost, producer, number = take(), take(), take(), take()
local head, why = reach()
if not head then return why end
if head.incarnation ~= incarnation then return { 'lost' } end
if head.lease ~= turn then
  local closed = head.closed == turn
  if not closed and head.keyed > 0 then
    for _, raw in ipairs(redis.call('HVALS', KEYED)) do
      local record = read_keyed(raw)
      closed = closed or (record ~= nil and record.finished and record.turn == turn)
    end
  end
  return closed and { 'duplicate', told(head) } or { 'lost' }
end

local first, last = 0, -1
local replies = tonumber(ARGV[position + 1])
local standing, clash = 'new', nil
if replies > 0 then standing, clash = numbered(head, producer, number) end
if clash then return clash end
if replies > 0 and standing == 'new' then
  mark(head, producer, number)
  first, last = append(head, place)
else
  position = position + 1 + 2 * replies
end
if not abandoned then
  head.closed = turn
  local raw = head.lease_key ~= '' and redis.call('HGET', KEYED, head.lease_key)
  local record = raw and read_keyed(raw)
  if record then
    record.finished, record.reply_first, record.reply_last = true, first, last
    write_keyed(head.lease_key, record)
  end
end
head.lease, head.lease_until, head.lease_key = '', '', ''
spend(head, tokens, cost)
apply(head)
changed(head)
return { 'ok', told(head), first, last }
