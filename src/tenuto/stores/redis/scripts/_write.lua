-- Changing a session: messages, variables, counters, and the end that every change has.

local function turn_of(member)
  return tonumber(string.match(member, '^{"seq":%d+,"turn":(%d+),'))
end

-- The place of the first message of a turn after `oldest`.
local function first_after(oldest, count)
  local at, step = 0, 1
  while at < count do
    for i, member in ipairs(redis.call('ZRANGE', LOG, at, at + step - 1)) do
      if (turn_of(member) or 0) > oldest then return at + i - 1 end
    end
    at, step = at + step, math.min(step * 2, 64)
  end
  return count
end

-- Drop a beginning of the log. Looks at what goes and one message more, never at all of it.
local function trim(head)
  local count = redis.call('ZCARD', LOG)
  local first = head.max_messages and math.max(0, count - head.max_messages) or 0
  if head.max_turns and head.turns > head.max_turns then
    first = math.max(first, first_after(head.turns - head.max_turns, count))
  end
  if first > 0 then redis.call('ZREMRANGEBYRANK', LOG, 0, first - 1) end
  return count - first
end

-- Every change ends here: caps, counters, version, deadline, place on the shelves.
local function changed(head)
  local at = math.max(now, head.updated)
  head.messages = trim(head)
  head.version = head.version + 1
  head.updated = at
  head.expires = deadline(head, at)
  back(head)
  index(head)
  save(head)
end

-- Takes: how many, then a turn offset and a body for each. Returns the first and last sequence number.
local function append(head, number)
  local count = tonumber(take())
  local first, turn = head.seq + 1, number
  if head.messages == 0 and count > 0 then bare(head, LOG) end
  local pending = {}
  for _ = 1, count do
    head.seq = head.seq + 1
    turn = number + tonumber(take())
    pending[#pending + 1] = head.seq
    pending[#pending + 1] = string.format('{"seq":%.0f,"turn":%.0f,', head.seq, turn) .. take()
    if #pending == 1000 then
      redis.call('ZADD', LOG, unpack(pending))
      pending = {}
    end
  end
  if #pending > 0 then redis.call('ZADD', LOG, unpack(pending)) end
  if turn > head.turns then head.turns = turn end
  return first, head.seq
end

local function between(first, last)
  if last < first then return {} end
  return redis.call('ZRANGE', LOG, first, last, 'BYSCORE')
end

-- Takes: how many, then name and value for each; how many to remove, then their names.
local function set_vars(head)
  local count = tonumber(take())
  for _ = 1, count do
    local name = take()
    redis.call('HSET', VARS, name, take())
  end
  if count > 0 then
    bare(head, VARS)
    head.vars = '1'
  end
  for _ = 1, tonumber(take()) do redis.call('HDEL', VARS, take()) end
end

-- Takes: whether there are changes; a title or its absence, a status, a window start, and variables.
local function apply(head)
  if take() == '0' then return end
  local titled, title, status, window = take(), take(), take(), take()
  if titled == '1' then head.title = title end
  if status ~= '' then head.status = status end
  if window ~= '' then head.window = tonumber(window) end
  set_vars(head)
end

-- Totals are added by the server: sums beyond what a Lua number holds stay exact.
local function spend(head, tokens, cost)
  if tokens ~= '0' then
    redis.call('HINCRBY', HEAD, 'tokens', tokens)
    head.tokens = redis.call('HGET', HEAD, 'tokens')
  end
  if cost ~= '0' then
    redis.call('HINCRBY', HEAD, 'cost', cost)
    head.cost = redis.call('HGET', HEAD, 'cost')
  end
end

local function forget_all()
  redis.call('UNLINK', unpack(KEYS))
end
