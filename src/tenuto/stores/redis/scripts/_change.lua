-- Changing what is not a message: variables and totals.

-- Set names and values that stand in ARGV from `at` on, then remove names that follow. Returns what follows.
local function set_variables(n, at, sets, removals)
  for i = at, at + 2 * sets - 1, 2 do call('HSET', VARS, ARGV[i], ARGV[i + 1]) end
  at = at + 2 * sets
  for i = at, at + removals - 1 do call('HDEL', VARS, ARGV[i]) end
  if sets > 0 then n[HAS_VARS] = 1 end
  return at + removals
end

-- Add to a total kept in two parts, of 2^40 and of 1: exact beyond what a Lua number holds.
local function add(n, at, high, low)
  low = n[at + 1] + low
  if low >= 1099511627776 then
    high, low = high + 1, low - 1099511627776
  end
  n[at], n[at + 1] = n[at] + high, low
end
