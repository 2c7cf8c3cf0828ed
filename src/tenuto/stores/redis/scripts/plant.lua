-- needs: head lasting write change lay
-- Make a session that branched off another, with its messages, unless its id is taken.
-- ARGV: numbers, facts, owner, title, incarnation; variables; sequence number and message in turn.
local _, sets, count = struct.unpack('>i8i8i8', ARGV[5])
local asked = caller
caller = ''
local got, why = reach()
if got then
  if asked ~= '' and asked ~= got[2] then return { 'foreign', got[3] } end
  return { 'exists' }
end
if why[1] ~= 'absent' and why[1] ~= 'expired' then return why end
local n = numbers_of(ARGV[6])
lay(ARGV[7], ARGV[8], ARGV[9], ARGV[10])
local at = set_variables(n, 11, sets, 0)
for i = at, at + 2 * count - 1, 1000 do
  call('ZADD', LOG, unpack(ARGV, i, math.min(i + 999, at + 2 * count - 1)))
end
local numbers, due = changed(n, ARGV[8])
return { 'ok', numbers, ARGV[7], ARGV[9], variables(n), due }
