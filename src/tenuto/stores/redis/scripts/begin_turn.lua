-- needs: head lasting write once repeat producer lay create
-- Find or create the session, append the user's words, take the lease, bring the window.
local turn, key, fingerprint, producer = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local _, lease_until, size, sent, number, create, sets, epoch, after, override, idle, touches, messages, turns =
  struct.unpack('>i8i8i8i8i8i8i8i8i8i8i8i8i8i8', ARGV[5])
local new_at = 10 + sent
local got, n, made = find_or_create(create, new_at, key, producer)
if not got then return n end
local last_active = made and '' or n[UPDATED]

local keyed, clash = known(got[5], fingerprint)
if clash then return clash end
if keyed and keyed[DONE] == 1 then
  return { 'finished', got[1], got[3], got[4], variables(n), 0, keyed.turn, keyed[NUMBER],
    call('ZRANGEBYSCORE', LOG, keyed[FIRST], keyed[LAST]),
    call('ZRANGEBYSCORE', LOG, keyed[REPLY_FIRST], keyed[REPLY_LAST]) }
end
if n[LEASE_UNTIL] > now then return { 'busy', n[LEASE_UNTIL] } end
local fresh
if not keyed then
  fresh, clash = is_new(producer, number, got[6])
  if clash then return clash end
end

if made then settle(n, turn, new_at, sets) end
local words, place, first, last = 0, n[TURNS] + 1, n[SEQ] + 1, n[SEQ]
local more, raw = {}, ''
if keyed then
  place, words = keyed[NUMBER], call('ZRANGEBYSCORE', LOG, keyed[FIRST], keyed[LAST])
  keyed.turn = turn
  raw = write_keyed(keyed)
  more[1], more[2] = 'k' .. key, raw
else
  if fresh then
    first, last = append(n, 10, sent, place)
    if producer ~= '' then more[1], more[2] = 'p' .. producer, number end
  end
  n[TURNS] = place
  if key ~= '' then
    raw = write_keyed({ 0, place, first, last, 0, -1, n[KEYS_SEEN], turn = turn, fingerprint = fingerprint })
    remember(n, more, key, raw)
  end
end
n[LEASE_UNTIL] = lease_until
if override == 1 then
  n[IDLE], n[TOUCH], n[MAX_MESSAGES], n[MAX_TURNS] = idle, touches, messages, turns
end
-- The lease carries what its key remembers, so that the end of the turn need not look it up.
local numbers, due = changed(n, got[2], 'l', turn .. '\0' .. key .. raw, unpack(more))
-- The caller has the new words already, and perhaps what stood before them: only what it does not know travels.
local missing, from = size - (n[SEQ] - first + 1), epoch == n[EPOCH] and after + 1 or n[WINDOW]
local window = missing > 0 and call('ZREVRANGEBYSCORE', LOG, first - 1, from, 'LIMIT', 0, missing) or 0
return { keyed and 'resumed' or fresh and 'opened' or 'repeated', numbers, got[3], got[4], variables(n), due, place,
  first, last_active, made or '', words, epoch == n[EPOCH] and 1 or 0, window }
