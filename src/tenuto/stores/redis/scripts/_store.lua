-- Store the bodies in ARGV from `bodies_at` on, `sent` of them, as messages of the turn `place`, or of those that
-- `offsets` adds to it. Gives the `first` and `last` sequence number.
-- A body comes with a place in the log in front. Where `foreseen` it is the right one, else it is written anew.
first, last = n[SEQ] + 1, n[SEQ] + sent
local turn_of = place
if foreseen and sent == 1 then
  call('ZADD', LOG, first, ARGV[bodies_at])
else
  local pending = {}
  for i = 0, sent - 1 do
    local body = ARGV[bodies_at + i]
    if offsets then turn_of = place + struct.unpack('>i8', offsets, 8 * i + 1) end
    if not foreseen then
      local comma = string.find(body, ',', string.find(body, ',', 1, true) + 1, true)
      body = string.format('{"seq":%.0f,"turn":%.0f', first + i, turn_of) .. string.sub(body, comma)
    end
    pending[#pending + 1] = first + i
    pending[#pending + 1] = body
    if #pending == 1000 then
      call('ZADD', LOG, unpack(pending))
      pending = {}
    end
  end
  if #pending > 0 then call('ZADD', LOG, unpack(pending)) end
end
n[SEQ], n[MESSAGES] = last, n[MESSAGES] + sent
if sent > 0 and turn_of > n[TURNS] then n[TURNS] = turn_of end
