-- Removes a record that was set aside. KEYS: its name. Returns its sums, and how many traces it had.
-- include: entries
local row = call('HMGET', KEYS[1], 'n', 'r')
local traces = read(KEYS[1], (ranges_of(KEYS[1], row[2]) or {}).t, 't', 0, math.huge, math.huge)
call('DEL', KEYS[1])
return {row[1], #traces / 2}
