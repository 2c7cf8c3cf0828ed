-- Append the reply, add the usage, apply the changes, keep the trace, give the lease back.
-- const: TRACES_KEPT=100
-- include: head
local incarnation, turn, producer = ARGV[6], ARGV[7], ARGV[8]
local _, place, abandoned, sent, number, tokens_high, tokens_low, cost_high, cost_low, changes, traced, epoch, version =
  struct.unpack('>i8i8i8i8i8i8i8i8i8i8i8i8i8', ARGV[5])
local bodies_at, at = 9, 9 + sent
local raw, born, lease, mark = unpack(call('HMGET', HEAD, 's', 'i', 'l', 'p' .. producer))
-- include: check
if answer then return answer end
if born ~= incarnation then return { 'lost' } end
local foreseen = epoch == n[EPOCH] and version == n[VERSION]
local brief = foreseen and changes == 0
local facts, title
if not brief then
  facts, title = unpack(call('HMGET', HEAD, 'f', 't'))
  if not (facts and title) then return { 'corrupt', '' } end
end
if n[LEASE_UNTIL] < 0 or not lease or string.sub(lease, 1, #turn + 1) ~= turn .. '\0' then
  -- include: closed
end
-- Asked before anything is written: a key of another type must stop the whole step.
local replaced = traced == 1 and call('ZCOUNT', TRACES, place, place)

local first, last, more, offsets = 0, -1, { 'c', turn }
if sent > 0 then
  -- include: producer
  if fresh then
    -- include: store
    if producer ~= '' then more[3], more[4] = 'p' .. producer, number end
  end
end
-- An abandoned turn is not closed: a retry may take it up again.
if abandoned == 1 then
  more[1], more[2] = 'l', ''
elseif #lease >= #turn + 74 then
  -- behind turn and key stands what the key remembers; it is finished now, with this reply
  local record = string.sub(lease, #turn + 18)
  if n[KEYS_SEEN] - struct.unpack('>i8', record, 49) <= REMEMBERED then
    more[#more + 1] = 'k' .. string.sub(lease, #turn + 2, #turn + 17)
    more[#more + 1] = struct.pack('>i8', 1) .. string.sub(record, 9, 32) .. struct.pack('>i8i8', first, last)
      .. string.sub(record, 49)
  end
end
n[LEASE_UNTIL] = -1
-- include: spend
if changes == 1 then
  -- include: patch
end
-- include: changed
if traced == 1 then
  if replaced > 0 then call('ZREMRANGEBYSCORE', TRACES, place, place) end
  call('ZADD', TRACES, place, ARGV[at])
  if place > TRACES_KEPT then call('ZREMRANGEBYSCORE', TRACES, 1, place - TRACES_KEPT) end
end
if brief then return numbers end
-- include: variables
return { 'ok', numbers, facts, title, variables, first, last }
