-- What an idempotency key stands for.
-- A remembered write is numbers in one string (finished, turn number, words, reply, how many keys came before), then
-- turn id, NUL, fingerprint; no id holds a NUL.
-- const: REMEMBERED=1000 DONE=1 NUMBER=2 FIRST=3 LAST=4 REPLY_FIRST=5 REPLY_LAST=6 CAME=7 ROW='>i8i8i8i8i8i8i8'
local function read_keyed(raw)
  if #raw < 57 then return nil end
  local write = { struct.unpack(ROW, raw) }
  write.turn, write.fingerprint = string.match(raw, '^([^%z]*)%z([^%z]*)$', 57)
  return write.turn and write
end
