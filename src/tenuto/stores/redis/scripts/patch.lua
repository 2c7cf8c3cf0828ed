-- needs: head lasting write change
-- Change the head.
local _, expected, titled, status, window, sets, removals = struct.unpack('>i8i8i8i8i8i8i8', ARGV[5])
local got, n = reach()
if not got then return n end
if expected >= 0 and expected ~= n[VERSION] then return { 'version', n[VERSION] } end
local title = got[4]
if titled == 1 then
  title = ARGV[6]
  call('HSET', HEAD, 't', title)
end
if status >= 0 then n[STATUS] = status end
if window >= 0 then n[WINDOW] = window end
set_variables(n, 6 + titled, sets, removals)
local numbers, due = changed(n, got[2])
return { 'ok', numbers, got[3], title, variables(n), due }
