-- A session's head: read, checked, written. Every script of a session begins with this part.
-- KEYS: head, log, vars, keyed, order, marks; all under one hash tag.
-- ARGV: now, the caller's owner ('' reaches all), prefix of shelves ('' where they live elsewhere),
--       space, key of the expiry index, session key; then what the script itself takes, read by take().
-- Instants are microseconds. A body is opaque here: it goes in and out byte by byte.
local HEAD, LOG, VARS, KEYED, ORDER, MARKS = unpack(KEYS)
local now, caller = tonumber(ARGV[1]), ARGV[2]
local FORMAT = 1
local HOUR = 3600000000

local position = 6
local function take()
  position = position + 1
  return ARGV[position]
end

local NAMES = {
  'format', 'who', 'incarnation', 'created', 'updated', 'expires', 'idle', 'touch', 'max_messages', 'max_turns',
  'version', 'title', 'status', 'turns', 'messages', 'seq', 'window', 'tokens', 'cost', 'fork', 'owner',
  'lease', 'lease_until', 'lease_key', 'closed', 'keyed', 'vars', 'indexed', 'backed',
}
local WHOLE = { 'created', 'updated', 'version', 'turns', 'messages', 'seq', 'window', 'keyed' }

-- The head as a table, or nil and why not: absent, corrupt, or written by a newer release.
local function load()
  local values = redis.call('HMGET', HEAD, unpack(NAMES))
  if not values[1] then
    return nil, redis.call('EXISTS', HEAD) == 1 and 'corrupt' or 'absent'
  end
  local head = {}
  for i, name in ipairs(NAMES) do
    if not values[i] then return nil, 'corrupt' end
    head[name] = values[i]
  end
  local format = tonumber(head.format)
  if not format then return nil, 'corrupt' end
  if format > FORMAT then return nil, 'newer' end
  for _, name in ipairs(WHOLE) do
    head[name] = tonumber(head[name])
    if not head[name] then return nil, 'corrupt' end
  end
  if not (tonumber(head.tokens) and tonumber(head.cost)) then return nil, 'corrupt' end
  head.expires = tonumber(head.expires)
  head.idle = tonumber(head.idle)
  head.max_messages = tonumber(head.max_messages)
  head.max_turns = tonumber(head.max_turns)
  return head
end

-- The head if it exists for the caller, or nil and an answer that says why not.
local function reach()
  local head, why = load()
  if not head then return nil, { why } end
  if head.expires and head.expires <= now then return nil, { 'expired' } end
  if caller ~= '' and caller ~= head.owner then return nil, { 'foreign', head.who } end
  return head
end

local function deadline(head, at)
  if not head.idle then return nil end
  return (head.touch == 'never' and head.created or at) + head.idle
end

-- Keys outlive the deadline by one to two hours, so that a sweep can tell of the session; then they go by
-- themselves. They are told only once an hour, since telling six keys costs as much as the rest of a write.
local function back(head)
  if not head.expires then
    if head.backed ~= '' then
      for _, key in ipairs(KEYS) do redis.call('PERSIST', key) end
      head.backed = ''
    end
    return
  end
  local backed = tonumber(head.backed)
  local lasting = backed and backed >= head.expires + HOUR and backed <= head.expires + 2 * HOUR
  if not lasting then
    head.backed = head.expires + 2 * HOUR
    head.bare = KEYS
  end
  if head.bare then
    local ttl = math.max(1, math.ceil((tonumber(head.backed) - now) / 1000))
    for _, key in ipairs(head.bare) do redis.call('PEXPIRE', key, ttl) end
  end
end

-- Say that a key may just have come into being and has no time to live yet.
local function bare(head, key)
  if head.bare ~= KEYS then
    head.bare = head.bare or {}
    table.insert(head.bare, key)
  end
end

-- Shelves and expiry index are derived data in other slots: written here where one server holds all slots,
-- by the caller elsewhere. A failure must not undo the write, so errors are left to the repair.
local function index(head)
  head.due = head.expires and (head.indexed == '' or head.expires < tonumber(head.indexed))
  if head.due then head.indexed = head.expires end
  local shelf = ARGV[3]
  if shelf == '' then return end
  redis.pcall('ZADD', shelf .. ARGV[4] .. '}', head.updated, ARGV[6])
  if head.owner ~= '' then redis.pcall('ZADD', shelf .. head.owner .. '}', head.updated, ARGV[6]) end
  if head.due then redis.pcall('ZADD', ARGV[5], head.expires, head.who) end
end

local function save(head)
  redis.call('HSET', HEAD,
    'format', FORMAT, 'who', head.who, 'incarnation', head.incarnation, 'created', head.created,
    'updated', head.updated, 'expires', head.expires or '', 'idle', head.idle or '', 'touch', head.touch,
    'max_messages', head.max_messages or '', 'max_turns', head.max_turns or '', 'version', head.version,
    'title', head.title, 'status', head.status, 'turns', head.turns, 'messages', head.messages, 'seq', head.seq,
    'window', head.window, 'fork', head.fork, 'owner', head.owner, 'lease', head.lease,
    'lease_until', head.lease_until, 'lease_key', head.lease_key, 'closed', head.closed, 'keyed', head.keyed,
    'vars', head.vars, 'indexed', head.indexed, 'backed', head.backed)
end

-- The head as the caller reads it.
local function told(head)
  return {
    head.who, head.incarnation, head.created, head.updated, head.expires or '', head.idle or '', head.touch,
    head.max_messages or '', head.max_turns or '', head.version, head.title, head.status, head.turns,
    head.messages, head.seq, head.window, head.tokens, head.cost, head.fork, head.owner, head.due and 1 or 0,
    head.vars == '' and {} or redis.call('HGETALL', VARS),
  }
end

-- Move the deadline where reads do: by a hundredth of the retention at least, so that reading stays cheap.
local function touch(head)
  if head.touch ~= 'read' or not head.idle or not head.expires then return end
  local moved, step = now + head.idle, head.idle / 100
  local whole = math.floor(step)
  if step - whole > 0.5 or (step - whole == 0.5 and whole % 2 == 1) then whole = whole + 1 end
  if moved - head.expires < whole then return end
  head.expires = moved
  back(head)
  redis.call('HSET', HEAD, 'expires', head.expires, 'backed', head.backed)
end
