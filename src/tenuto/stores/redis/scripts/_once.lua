-- What happens once: idempotency keys.
-- A remembered write is numbers in one string (finished, turn number, words, reply, how many came before), then
-- turn id, NUL, fingerprint; no id holds a NUL.
-- const: REMEMBERED=1000 DONE=1 NUMBER=2 FIRST=3 LAST=4 REPLY_FIRST=5 REPLY_LAST=6 CAME=7 ROW='>i8i8i8i8i8i8i8'

local function read_keyed(raw)
  if #raw < 57 then return nil end
  local record = { struct.unpack(ROW, raw) }
  record.turn, record.fingerprint = string.match(raw, '^([^%z]*)%z([^%z]*)$', 57)
  return record.turn and record
end

local function write_keyed(record)
  return struct.pack(ROW, unpack(record, 1, 7)) .. record.turn .. '\0' .. record.fingerprint
end
