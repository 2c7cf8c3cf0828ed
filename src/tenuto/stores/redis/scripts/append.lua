-- Append messages outside a turn.
-- include: head
local batch, key, fingerprint, producer, offsets = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local _, sent, number, create, sets, tokens_high, tokens_low, cost_high, cost_low =
  struct.unpack('>i8i8i8i8i8i8i8i8i8', ARGV[5])
local bodies_at, new_at, incarnation = 11, 11 + sent, batch
local raw, facts, title, came, mark = unpack(call('HMGET', HEAD, 's', 'f', 't', 'k' .. key, 'p' .. producer))
-- include: check
-- include: create
if not (facts and title) then return { 'corrupt', '' } end
-- include: known
if keyed then
  -- include: variables
  return { 'duplicate', raw, facts, title, variables, call('ZRANGEBYSCORE', LOG, keyed[FIRST], keyed[LAST]) }
end
-- include: producer
if not fresh then
  -- include: variables
  return { 'duplicate', raw, facts, title, variables, {} }
end

-- include: settle
local place, more, first, last, foreseen = n[TURNS] + 1, {}
-- include: store
if producer ~= '' then more[1], more[2] = 'p' .. producer, number end
if key ~= '' then
  local record = struct.pack(ROW, 1, n[TURNS], first, last, 0, -1, n[KEYS_SEEN]) .. batch .. '\0' .. fingerprint
  -- include: remember
end
-- include: spend
-- include: changed
-- include: variables
return { 'ok', numbers, facts, title, variables, first, place, made }
