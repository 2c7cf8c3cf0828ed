-- needs: head lasting write change once repeat producer lay create
-- Append messages outside a turn.
local batch, key, fingerprint, producer, offsets = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local _, sent, number, create, sets, tokens_high, tokens_low, cost_high, cost_low =
  struct.unpack('>i8i8i8i8i8i8i8i8i8', ARGV[5])
local new_at = 11 + sent
local got, n, made = find_or_create(create, new_at, key, producer)
if not got then return n end
local keyed, clash = known(got[5], fingerprint)
if clash then return clash end
if keyed then
  return { 'duplicate', got[1], got[3], got[4], variables(n), 0,
    call('ZRANGEBYSCORE', LOG, keyed[FIRST], keyed[LAST]) }
end
local fresh
fresh, clash = is_new(producer, number, got[6])
if clash then return clash end
if not fresh then return { 'duplicate', got[1], got[3], got[4], variables(n), 0, {} } end

if made then settle(n, batch, new_at, sets) end
local place, more = n[TURNS] + 1, {}
local first, last = append(n, 11, sent, place, offsets)
if producer ~= '' then more[1], more[2] = 'p' .. producer, number end
if key ~= '' then
  remember(n, more, key, write_keyed({ 1, n[TURNS], first, last, 0, -1, n[KEYS_SEEN], turn = batch,
    fingerprint = fingerprint }))
end
add(n, TOKENS, tokens_high, tokens_low)
add(n, COST, cost_high, cost_low)
local numbers, due = changed(n, got[2], unpack(more))
return { 'ok', numbers, got[3], got[4], variables(n), due, first, place, made or '' }
