-- Put other messages and traces in the place of stored ones, which is no activity: neither deadline nor shelf moves.
-- ARGV: places and the length of what their bodies begin with, two numbers each; then messages, then traces.
-- include: head
local _, messages, traces, expected = struct.unpack('>i8i8i8i8', ARGV[5])
-- include: reach
if expected >= 0 and expected ~= n[VERSION] then return { 'version', n[VERSION] } end
-- All is looked at before anything is written: a key of another type must stop the whole step. Of two bodies for one
-- place the later one holds.
local old, new = { {}, {} }, { {}, {} }
for i = 0, messages + traces - 1 do
  local place, span = struct.unpack('>i8i8', ARGV[6], 16 * i + 1)
  local kind = i < messages and 1 or 2
  local found = call('ZRANGEBYSCORE', KEYS[2 * kind], place, place)[1]
  local front = found and string.match(found, kind == 1 and '^{"seq":%d+,"turn":%d+,' or '^%d+:{')
  if front and string.sub(found, #front + 1, #front + span) == string.sub(ARGV[7 + i], 2, span + 1) then
    old[kind][place], new[kind][place] = found, front .. string.sub(ARGV[7 + i], 2)
  end
end
local numbers = raw
if next(new[1]) or next(new[2]) then
  for kind = 1, 2 do
    for place, body in pairs(new[kind]) do
      if body ~= old[kind][place] then
        -- The new one first: it is what a server without memory refuses.
        call('ZADD', KEYS[2 * kind], place, body)
        call('ZREM', KEYS[2 * kind], old[kind][place])
      end
    end
  end
  -- What others have seen of the log is no longer what it says.
  n[VERSION], n[EPOCH] = n[VERSION] + 1, n[EPOCH] + 1
  numbers = struct.pack(LAYOUT, unpack(n)) .. owner
  call('HSET', HEAD, 's', numbers)
  -- include: gone
end
-- include: variables
return { 'ok', numbers, facts, title, variables }
