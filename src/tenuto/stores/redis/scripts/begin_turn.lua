-- Find or create the session, append the user's words, take the lease, bring the window.
-- include: head
local turn, key, fingerprint, producer = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
-- A session made now is told from an earlier one of its id by the turn that makes it.
local incarnation = turn
local _, lease_until, size, sent, number, create, sets, kept, epoch, version, after =
  struct.unpack('>i8i8i8i8i8i8i8i8i8i8i8', ARGV[5])
local bodies_at, new_at = 10, 10 + sent + kept
local raw, came, mark = unpack(call('HMGET', HEAD, 's', 'k' .. key, 'p' .. producer))
local facts, title
-- include: check
-- include: create
local last_active = made ~= '' and '' or n[UPDATED]
-- Where nothing changed since the caller saw the session, the numbers are all it has to be told.
local foreseen = epoch == n[EPOCH] and version == n[VERSION]
local brief = foreseen and not came
if not brief and made == '' then
  facts, title = unpack(call('HMGET', HEAD, 'f', 't'))
  if not (facts and title) then return { 'corrupt', '' } end
end
-- include: known
if keyed and keyed[DONE] == 1 then
  -- include: variables
  return { 'finished', raw, facts, title, variables, keyed.turn, keyed[NUMBER],
    call('ZRANGEBYSCORE', LOG, keyed[FIRST], keyed[LAST]),
    call('ZRANGEBYSCORE', LOG, keyed[REPLY_FIRST], keyed[REPLY_LAST]) }
end
if n[LEASE_UNTIL] > now then return { 'busy', n[LEASE_UNTIL], unpack(call('HMGET', HEAD, 'l', 'i')) } end
local how, words, place, first, last = 'resumed', 0, n[TURNS] + 1, n[SEQ] + 1, n[SEQ]
local more, record, offsets = { 'l', '' }, ''
if keyed then
  place, words = keyed[NUMBER], call('ZRANGEBYSCORE', LOG, keyed[FIRST], keyed[LAST])
  record = struct.pack(ROW, unpack(keyed, 1, 7)) .. turn .. '\0' .. fingerprint
  more[3], more[4] = 'k' .. key, record
else
  -- include: producer
  how = fresh and 'opened' or 'repeated'
  -- include: settle
  if fresh then
    -- include: store
    if producer ~= '' then more[3], more[4] = 'p' .. producer, number end
  end
  n[TURNS] = place
  if key ~= '' then
    record = struct.pack(ROW, 0, place, first, last, 0, -1, n[KEYS_SEEN]) .. turn .. '\0' .. fingerprint
    -- include: remember
  end
end
n[LEASE_UNTIL] = lease_until
if kept == 1 then
  n[IDLE], n[TOUCH], n[MAX_MESSAGES], n[MAX_TURNS] = struct.unpack('>i8i8i8i8', ARGV[10 + sent])
end
-- The lease carries what its key remembers, so that the end of the turn need not look it up.
more[2] = turn .. '\0' .. key .. record
-- include: changed
if brief and how == 'opened' then return numbers end
if brief then facts, title = unpack(call('HMGET', HEAD, 'f', 't')) end
-- The caller has the new words already, and perhaps what stood before them: only what it does not know travels.
local missing, from = size - (n[SEQ] - first + 1), epoch == n[EPOCH] and after + 1 or n[WINDOW]
local window = missing > 0 and call('ZREVRANGEBYSCORE', LOG, first - 1, from, 'LIMIT', 0, missing) or 0
-- include: variables
return { how, numbers, facts, title, variables, place, first, last_active, made, words, window }
