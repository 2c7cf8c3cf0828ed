-- Set variables: names and values that stand in ARGV from `at` on, then names to remove. Moves `at` behind them.
for i = at, at + 2 * sets - 1, 2 do call('HSET', VARS, ARGV[i], ARGV[i + 1]) end
at = at + 2 * sets
for i = at, at + removals - 1 do call('HDEL', VARS, ARGV[i]) end
at = at + removals
if sets > 0 then n[HAS_VARS] = 1 end
