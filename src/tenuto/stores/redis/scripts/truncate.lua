-- Forget the messages after a sequence number, what idempotency keys remember of them, and their turns' traces.
-- ARGV from 6 on: the numbers of messages that stay all the same; the turn that makes room for its own reply, if any.
-- include: head
-- include: once
local _, after, expected, sparing = struct.unpack('>i8i8i8i8', ARGV[5])
-- include: reach
if expected >= 0 and expected ~= n[VERSION] then return { 'version', n[VERSION] } end
local within = ARGV[7]
local lease = within ~= '' and call('HGET', HEAD, 'l')
if within ~= '' and (n[LEASE_UNTIL] < 0 or not lease or string.sub(lease, 1, #within + 1) ~= within .. '\0') then
  return { 'lost' }
end
-- Behind the turn stands the key it came under; that one has no reply yet.
local own = lease and 'k' .. string.sub(lease, #within + 2, #within + 17)
local from = string.format('(%.0f', math.max(0, after))
local spared = {}
for i = 0, sparing - 1 do
  local seq = struct.unpack('>i8', ARGV[6], 8 * i + 1)
  local member = seq > after and call('ZRANGEBYSCORE', LOG, seq, seq)[1]
  if member then spared[#spared + 1], spared[#spared + 2] = seq, member end
end
-- Taken out first and put back at the end, so that all that stands behind the cut in between is what goes.
for i = 2, #spared, 2 do call('ZREM', LOG, spared[i]) end
if call('ZCARD', TRACES) > 1 then
  -- A resumed turn's reply stands after later turns, so the lowest number may be that of any message.
  local lowest = n[TURNS] + 1
  for _, member in ipairs(call('ZRANGEBYSCORE', LOG, from, '+inf')) do
    lowest = math.min(lowest, tonumber(string.match(member, '^{"seq":%d+,"turn":(%d+),')) or 1)
  end
  call('ZREMRANGEBYSCORE', TRACES, math.max(1, lowest), '+inf')
end
n[MESSAGES] = n[MESSAGES] - call('ZREMRANGEBYSCORE', LOG, from, '+inf')
for i = 1, #spared, 2 do call('ZADD', LOG, spared[i], spared[i + 1]) end
local fields = n[KEYS_SEEN] > 0 and call('HGETALL', HEAD) or {}
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 1) == 'k' and fields[i] ~= own then
    local record = read_keyed(fields[i + 1])
    if not record or record[FIRST] > after then
      call('HDEL', HEAD, fields[i])
    elseif record[DONE] == 1 and record[REPLY_LAST] > after then
      record[DONE], record[REPLY_FIRST], record[REPLY_LAST] = 0, 0, -1
      call('HSET', HEAD, fields[i], struct.pack(ROW, unpack(record)) .. record.turn .. '\0' .. record.fingerprint)
    end
  end
end
if within == '' then
  call('HDEL', HEAD, 'l', 'c')
  n[LEASE_UNTIL] = -1
end
n[EPOCH] = n[EPOCH] + 1
-- include: gone
local more, foreseen = {}, true  -- the key above tells more
-- include: changed
-- include: variables
return { 'ok', numbers, facts, title, variables }
