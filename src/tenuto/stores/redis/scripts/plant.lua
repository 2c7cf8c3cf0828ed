-- Make a session that branched off another, with its messages, unless its id is taken.
-- ARGV: numbers and owner, facts, title, incarnation; variables; sequence number and message in turn.
-- include: head
local _, sets, count = struct.unpack('>i8i8i8', ARGV[5])
local asked, facts, title, incarnation = caller, ARGV[7], ARGV[8], ARGV[9]
caller = ''
local raw = call('HGET', HEAD, 's')
-- include: check
if not answer then
  if asked ~= '' and asked ~= owner then return { 'foreign', call('HGET', HEAD, 'f') or '' } end
  return { 'exists' }
end
if answer[1] ~= 'absent' and answer[1] ~= 'expired' then return answer end
n, owner = { struct.unpack(LAYOUT, ARGV[6]) }, string.sub(ARGV[6], SIZE + 1)
-- include: lay
local at, removals, more, foreseen = 10, 0, {}
-- include: set
for i = at, at + 2 * count - 1, 1000 do
  call('ZADD', LOG, unpack(ARGV, i, math.min(i + 999, at + 2 * count - 1)))
end
-- include: changed
-- include: variables
return { 'ok', numbers, facts, title, variables }
