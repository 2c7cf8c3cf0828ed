-- Return to the caller: this turn does not hold the lease. Was it closed before, or is it lost?
-- include: once
local closed = call('HGET', HEAD, 'c') == turn
local fields = not closed and n[KEYS_SEEN] > 0 and call('HGETALL', HEAD) or {}
for i = 1, #fields, 2 do
  local record = string.sub(fields[i], 1, 1) == 'k' and read_keyed(fields[i + 1])
  closed = closed or (record and record[DONE] == 1 and record.turn == turn)
end
if not closed then return { 'lost' } end
if brief then facts, title = unpack(call('HMGET', HEAD, 'f', 't')) end
-- include: variables
do return { 'duplicate', raw, facts, title, variables } end
