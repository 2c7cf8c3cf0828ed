-- Apply changes: how many there are stands in ARGV at `at`, then title and variables. Moves `at` behind them.
local titled, status, window, sets, removals = struct.unpack('>i8i8i8i8i8', ARGV[at])
at = at + 1
if titled == 1 then
  title = ARGV[at]
  call('HSET', HEAD, 't', title)
  at = at + 1
end
if status >= 0 then n[STATUS] = status end
if window >= 0 then n[WINDOW] = window end
-- include: set
