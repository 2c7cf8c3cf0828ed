-- Finding a session, or making it where the call allows.
-- The caller brings what a new head would be: numbers, facts, owner, title, then variables.

-- Fields, numbers, and why they are new ('absent' or 'expired'); or nil and an answer.
-- Nothing is written before `settle`, so that a call refused later leaves everything as it was.
local function find_or_create(create, at, key, producer)
  local got, n = reach('k' .. key, 'p' .. producer)
  if got or create == 0 or (n[1] ~= 'absent' and n[1] ~= 'expired') then return got, n end
  local fresh = numbers_of(ARGV[at])
  return { ARGV[at], ARGV[at + 2], ARGV[at + 1], ARGV[at + 3] }, fresh, n[1]
end

-- Make a session real that was found to be absent. Leftovers of an earlier one under this id go.
local function settle(n, incarnation, at, sets)
  lay(ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], incarnation)
  for i = at + 4, at + 3 + 2 * sets, 2 do call('HSET', VARS, ARGV[i], ARGV[i + 1]) end
  if sets > 0 then n[HAS_VARS] = 1 end
end
