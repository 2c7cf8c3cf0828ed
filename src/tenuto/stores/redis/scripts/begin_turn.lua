-- needs: head write once create
-- Find or create the session, append the user's words, take the lease, bring the window.
local turn, lease_until, size = take(), take(), tonumber(take())
local key, fingerprint, producer, number = take(), take(), take(), take()
local override = take() == '1' and { take(), take(), take(), take() }
local head, why = find_or_create(turn)
if not head then return why end
local last_active = head.absent and '' or head.updated

local keyed, clash
if not head.absent then keyed, clash = known(key, fingerprint) end
if clash then return clash end
if keyed and keyed.finished then
  return { 'finished', told(head), keyed.turn, keyed.number, between(keyed.first, keyed.last),
    between(keyed.reply_first, keyed.reply_last) }
end
if head.lease ~= '' and tonumber(head.lease_until) > now then return { 'busy', head.lease_until } end
local standing
if not keyed then
  standing, clash = numbered(head, producer, number)
  if clash then return clash end
end

settle(head)
local words, place = {}, keyed and keyed.number or head.turns + 1
local first = head.seq + 1
if keyed then
  words = between(keyed.first, keyed.last)
  keyed.turn = turn
  write_keyed(key, keyed)
else
  local last = head.seq
  if standing == 'new' then
    mark(head, producer, number)
    first, last = append(head, place)
  end
  head.turns = place
  remember(head, key, { finished = false, turn = turn, fingerprint = fingerprint, first = first, last = last })
end
head.lease, head.lease_until, head.lease_key = turn, lease_until, key
if override then
  head.idle, head.touch = tonumber(override[1]), override[2]
  head.max_messages, head.max_turns = tonumber(override[3]), tonumber(override[4])
end
changed(head)
-- The caller has the new words already: only what stood before them travels.
local missing = size - (head.seq - first + 1)
local window = missing > 0
  and redis.call('ZRANGE', LOG, first - 1, head.window, 'BYSCORE', 'REV', 'LIMIT', 0, missing) or {}
return { keyed and 'resumed' or 'opened', told(head), place, first, words, window, last_active,
  head.absent and 1 or 0, head.replaces and 1 or 0, standing == 'old' and 1 or 0 }
