-- Every change ends here: caps, version, deadline, place on the shelves, and `more` fields that changed beside.
-- Shelves, expiry index and the list of spaces are derived data: written here where one server holds all keys, by
-- the caller elsewhere, who sees by the numbers when the index is due. A failure there must not undo the write, so
-- errors are left to the repair. `foreseen` says that the caller knew the version. Gives the `numbers`.
if n[MAX_MESSAGES] >= 0 and n[MESSAGES] > n[MAX_MESSAGES] or n[MAX_TURNS] >= 0 then
  -- include: trim
end
n[VERSION] = n[VERSION] + 1
if now > n[UPDATED] then n[UPDATED] = now end
n[EXPIRES] = n[IDLE] < 0 and -1 or (n[TOUCH] == NEVER and n[CREATED] or n[UPDATED]) + n[IDLE]
-- include: back
local due = n[EXPIRES] >= 0 and (n[INDEXED] < 0 or n[EXPIRES] < n[INDEXED])
if due then n[INDEXED] = n[EXPIRES] end
local shelf = ARGV[2]
if shelf ~= '' then
  redis.pcall('ZADD', shelf, n[UPDATED], ARGV[4])
  if owner ~= '' then redis.pcall('ZADD', string.sub(shelf, 1, -34) .. owner .. '}', n[UPDATED], ARGV[4]) end
  if due then redis.pcall('ZADD', ARGV[3], n[EXPIRES], facts or call('HGET', HEAD, 'f')) end
  -- Only a new session can be its space's first.
  if n[VERSION] == 1 then redis.pcall('ZADD', string.sub(shelf, 1, -38) .. ':l', 0, string.sub(shelf, -33, -2)) end
end
local numbers = struct.pack(LAYOUT, unpack(n)) .. owner
call('HSET', HEAD, 's', numbers, unpack(more))
if not foreseen then
  -- include: mixed
end
