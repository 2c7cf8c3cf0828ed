-- Changing a session: messages, and the end that every change has.

-- Store the bodies in ARGV from `at` on as messages of one turn, or of the turns that `offsets` says.
-- Returns the first and last sequence number.
local function append(n, at, count, turn, offsets)
  local first, last = n[SEQ] + 1, n[SEQ] + count
  local pending, place = {}, turn
  for i = 0, count - 1 do
    if offsets then place = turn + struct.unpack('>i8', offsets, 8 * i + 1) end
    pending[#pending + 1] = first + i
    pending[#pending + 1] = string.format('{"seq":%.0f,"turn":%.0f,', first + i, place) .. ARGV[at + i]
    if #pending == 1000 then
      call('ZADD', LOG, unpack(pending))
      pending = {}
    end
  end
  if #pending > 0 then call('ZADD', LOG, unpack(pending)) end
  n[SEQ], n[MESSAGES] = last, n[MESSAGES] + count
  if count > 0 and place > n[TURNS] then n[TURNS] = place end
  return first, last
end

-- Drop a beginning of the log. Looks at what goes and little more, never at all of it.
local function trim(n)
  local count, oldest = n[MESSAGES], n[TURNS] - n[MAX_TURNS]
  local first = n[MAX_MESSAGES] >= 0 and math.max(0, count - n[MAX_MESSAGES]) or 0
  local at, step, found = 0, 1, n[MAX_TURNS] < 0 or oldest <= 0
  while at < count and not found do
    local members = call('ZRANGE', LOG, at + 1, at + step)
    for i = 1, #members do
      local turn = tonumber(string.match(members[i], '^{"seq":%d+,"turn":(%d+),'))
      found = (turn or 0) > oldest
      if found then break end
      at = at + 1
    end
    step = math.min(step * 2, 64)
  end
  first = math.max(first, at)
  if first > 0 then
    call('ZREMRANGEBYRANK', LOG, 1, first)
    n[MESSAGES] = count - first
  end
end

-- Every change ends here: caps, version, deadline, place on the shelves, and the fields that changed beside.
-- Shelves and expiry index are derived data: written here where one server holds all keys, by the caller
-- elsewhere. A failure there must not undo the write, so errors are left to the repair.
-- Returns the numbers, and 1 when the expiry index is due.
local function changed(n, owner, ...)
  if n[MAX_MESSAGES] >= 0 and n[MESSAGES] > n[MAX_MESSAGES] or n[MAX_TURNS] >= 0 then trim(n) end
  n[VERSION] = n[VERSION] + 1
  if now > n[UPDATED] then n[UPDATED] = now end
  n[EXPIRES] = n[IDLE] < 0 and -1 or (n[TOUCH] == NEVER and n[CREATED] or n[UPDATED]) + n[IDLE]
  back(n)
  local due = n[EXPIRES] >= 0 and (n[INDEXED] < 0 or n[EXPIRES] < n[INDEXED])
  if due then n[INDEXED] = n[EXPIRES] end
  local shelf = ARGV[2]
  if shelf ~= '' then
    redis.pcall('ZADD', shelf, n[UPDATED], ARGV[4])
    if owner ~= '' then redis.pcall('ZADD', string.sub(shelf, 1, -34) .. owner .. '}', n[UPDATED], ARGV[4]) end
    if due then redis.pcall('ZADD', ARGV[3], n[EXPIRES], call('HGET', HEAD, 'f')) end
  end
  local numbers = struct.pack(LAYOUT, unpack(n, 1, 24))
  call('HSET', HEAD, 's', numbers, ...)
  return numbers, due and 1 or 0
end
