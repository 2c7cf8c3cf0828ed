-- needs: head lasting write change once producer
-- Append the reply, add the usage, apply the changes, give the lease back.
local incarnation, turn, producer = ARGV[6], ARGV[7], ARGV[8]
local _, place, abandoned, sent, number, tokens_high, tokens_low, cost_high, cost_low, titled, status, window, sets,
  removals = struct.unpack('>i8i8i8i8i8i8i8i8i8i8i8i8i8i8', ARGV[5])
local got, n = reach('i', 'l', 'p' .. producer)
if not got then return n end
if got[5] ~= incarnation then return { 'lost' } end
local lease = got[6] or ''
if n[LEASE_UNTIL] < 0 or string.sub(lease, 1, #turn + 1) ~= turn .. '\0' then
  local closed = call('HGET', HEAD, 'c') == turn
  local fields = not closed and n[KEYS_SEEN] > 0 and call('HGETALL', HEAD) or {}
  for i = 1, #fields, 2 do
    local record = string.sub(fields[i], 1, 1) == 'k' and read_keyed(fields[i + 1])
    closed = closed or (record and record[DONE] == 1 and record.turn == turn)
  end
  return closed and { 'duplicate', got[1], got[3], got[4], variables(n), 0 } or { 'lost' }
end

local first, last, more = 0, -1, {}
if sent > 0 then
  local fresh, clash = is_new(producer, number, got[7])
  if clash then return clash end
  if fresh then
    first, last = append(n, 9, sent, place)
    if producer ~= '' then more[1], more[2] = 'p' .. producer, number end
  end
end
local keyed = abandoned == 0 and read_keyed(string.sub(lease, #turn + 18))
if keyed and n[KEYS_SEEN] - keyed[CAME] <= REMEMBERED then
  keyed[DONE], keyed[REPLY_FIRST], keyed[REPLY_LAST] = 1, first, last
  more[#more + 1] = 'k' .. string.sub(lease, #turn + 2, #turn + 17)
  more[#more + 1] = write_keyed(keyed)
end
n[LEASE_UNTIL] = -1
add(n, TOKENS, tokens_high, tokens_low)
add(n, COST, cost_high, cost_low)
local title = got[4]
if titled == 1 then
  title = ARGV[9 + sent]
  call('HSET', HEAD, 't', title)
end
if status >= 0 then n[STATUS] = status end
if window >= 0 then n[WINDOW] = window end
set_variables(n, 9 + sent + titled, sets, removals)
-- An abandoned turn is not closed: a retry may take it up again.
local numbers, due = changed(n, got[2], abandoned == 0 and 'c' or 'l', abandoned == 0 and turn or '', unpack(more))
return { 'ok', numbers, got[3], title, variables(n), due, first, last }
