-- needs: head lasting write once once_new producer create
-- Find or create the session, append the user's words, take the lease, bring the window.
local turn, key, fingerprint, producer = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local _, lease_until, size, sent, number, create, sets, override, idle, touches, messages, turns =
  struct.unpack('>dddddddddddd', ARGV[1])
local new_at = 10 + sent
local got, n, made = find_or_create(create, new_at)
if not got then return n end
local last_active = made and '' or n[UPDATED]

local keyed, clash, fresh
if not made then
  keyed, clash = known(key, fingerprint)
  if clash then return clash end
  if keyed and keyed[DONE] == 1 then
    return { 'finished', got[1], got[3], got[4], variables(n), 0, keyed.turn, keyed[NUMBER],
      call('ZRANGEBYSCORE', LOG, keyed[FIRST], keyed[LAST]),
      call('ZRANGEBYSCORE', LOG, keyed[REPLY_FIRST], keyed[REPLY_LAST]) }
  end
  if n[LEASE_UNTIL] > now then return { 'busy', n[LEASE_UNTIL] } end
end
if not keyed then
  fresh, clash = is_new(producer, number, made)
  if clash then return clash end
end

if made then settle(n, turn, new_at, sets) end
local words, place, first, last = 0, n[TURNS] + 1, n[SEQ] + 1, n[SEQ]
if keyed then
  place, words = keyed[NUMBER], call('ZRANGEBYSCORE', LOG, keyed[FIRST], keyed[LAST])
  keyed.turn = turn
  write_keyed(key, keyed)
else
  if fresh then
    mark(producer, number)
    first, last = append(n, 10, sent, place)
  end
  n[TURNS] = place
  if key ~= '' then
    remember(n, key, { 0, place, first, last, 0, -1, turn = turn, fingerprint = fingerprint })
  end
end
n[LEASE_UNTIL] = lease_until
if override == 1 then
  n[IDLE], n[TOUCH], n[MAX_MESSAGES], n[MAX_TURNS] = idle, touches, messages, turns
end
local numbers, due = changed(n, got[2], 'l', turn .. '\0' .. key)
-- The caller has the new words already: only what stood before them travels.
local missing = size - (n[SEQ] - first + 1)
local window = missing > 0 and call('ZREVRANGEBYSCORE', LOG, first - 1, n[WINDOW], 'LIMIT', 0, missing) or 0
return { keyed and 'resumed' or fresh and 'opened' or 'repeated', numbers, got[3], got[4], variables(n), due, place,
  first, last_active, made or '', words, window }
