-- needs: head lasting write once
-- Forget the messages after a sequence number, and what idempotency keys remember of them.
local _, after = struct.unpack('>i8i8', ARGV[5])
local got, n = reach()
if not got then return n end
n[MESSAGES] = n[MESSAGES] - call('ZREMRANGEBYSCORE', LOG, string.format('(%.0f', math.max(0, after)), '+inf')
local fields = n[KEYS_SEEN] > 0 and call('HGETALL', HEAD) or {}
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 1) == 'k' then
    local record = read_keyed(fields[i + 1])
    if not record or record[FIRST] > after then
      call('HDEL', HEAD, fields[i])
    elseif record[DONE] == 1 and record[REPLY_LAST] > after then
      record[DONE], record[REPLY_FIRST], record[REPLY_LAST] = 0, 0, -1
      call('HSET', HEAD, fields[i], write_keyed(record))
    end
  end
end
call('HDEL', HEAD, 'l', 'c')
n[LEASE_UNTIL] = -1
n[EPOCH] = n[EPOCH] + 1
local numbers, due = changed(n, got[2])
return { 'ok', numbers, got[3], got[4], variables(n), due }
