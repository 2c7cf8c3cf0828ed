-- What happens once: idempotency keys, and producers that number what they send.
-- A remembered write is numbers (finished, turn number, words, reply) in one string, then turn id, NUL,
-- fingerprint; no id holds a NUL.
-- const: REMEMBERED=1000 DONE=1 NUMBER=2 FIRST=3 LAST=4 REPLY_FIRST=5 REPLY_LAST=6

local function read_keyed(raw)
  if #raw < 49 then return nil end
  local record = { struct.unpack('>dddddd', raw) }
  record.turn, record.fingerprint = string.match(raw, '^([^%z]*)%z([^%z]*)$', 49)
  return record.turn and record
end

local function write_keyed(key, record)
  call('HSET', KEYED, key, struct.pack('>dddddd', unpack(record, 1, 6)) .. record.turn .. '\0' .. record.fingerprint)
end
