-- needs: head lasting write once
-- Forget the messages after a sequence number, and what idempotency keys remember of them.
local _, after = struct.unpack('>dd', ARGV[1])
local got, n = reach()
if not got then return n end
n[MESSAGES] = n[MESSAGES] - call('ZREMRANGEBYSCORE', LOG, string.format('(%.0f', after), '+inf')
local keyed = n[HAS_KEYS] > 0 and call('HGETALL', KEYED) or {}
for i = 1, #keyed, 2 do
  local record = read_keyed(keyed[i + 1])
  if not record or record[FIRST] > after then
    call('HDEL', KEYED, keyed[i])
    call('LREM', ORDER, 1, keyed[i])
  elseif record[DONE] == 1 and record[REPLY_LAST] > after then
    record[DONE], record[REPLY_FIRST], record[REPLY_LAST] = 0, 0, -1
    write_keyed(keyed[i], record)
  end
end
call('HDEL', HEAD, 'l', 'c')
n[LEASE_UNTIL] = -1
local numbers, due = changed(n, got[2])
return { 'ok', numbers, got[3], got[4], variables(n), due }
