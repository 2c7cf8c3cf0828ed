-- Finding a session, or making it where the call allows.

-- Takes: whether to create; who, owner, retention, touch, caps, title and variables of the new session.
-- Nothing is written before `settle`, so that a call refused later leaves everything as it was.
local function find_or_create(token)
  local create = take() == '1'
  local head, why = reach()
  if not create then return head, why end
  local new = {
    who = take(), owner = take(), idle = tonumber(take()), touch = take(), max_messages = tonumber(take()),
    max_turns = tonumber(take()), title = take(), incarnation = token, created = now, updated = now, version = 0,
    status = 'active', turns = 0, messages = 0, seq = 0, window = 1, tokens = '0', cost = '0', fork = '', lease = '',
    lease_until = '', lease_key = '', closed = '', keyed = 0, vars = '', indexed = '', backed = '', absent = true,
  }
  new.vars_at = position
  local sets = tonumber(take())
  position = position + 2 * sets
  local removals = tonumber(take())
  position = position + removals
  if head or (why[1] ~= 'absent' and why[1] ~= 'expired') then return head, why end
  new.replaces = why[1] == 'expired'
  return new
end

-- Make a found-to-be-absent session real. Leftovers of an earlier one under this id go.
local function settle(head)
  if not head.absent then return end
  forget_all()
  redis.call('HSET', HEAD, 'tokens', 0, 'cost', 0)
  local after = position
  position = head.vars_at
  set_vars(head)
  position = after
end
