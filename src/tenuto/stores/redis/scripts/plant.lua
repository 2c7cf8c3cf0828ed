-- needs: head write
-- Make a session that branched off another, with its messages, unless its id is taken.
local head, why = load()
if head and not (head.expires and head.expires <= now) then
  if caller ~= '' and caller ~= head.owner then return { 'foreign', head.who } end
  return { 'exists' }
end
if not head and why ~= 'absent' then return { why } end
forget_all()
head = {
  who = take(), owner = take(), incarnation = take(), idle = tonumber(take()), touch = take(),
  max_messages = tonumber(take()), max_turns = tonumber(take()), title = take(), status = take(), fork = take(),
  turns = tonumber(take()), seq = tonumber(take()), window = tonumber(take()), messages = tonumber(take()),
  created = now, updated = now, version = 1, tokens = '0', cost = '0', lease = '', lease_until = '', lease_key = '',
  closed = '', keyed = 0, vars = '', indexed = '', backed = '',
}
head.expires = deadline(head, now)
redis.call('HSET', HEAD, 'tokens', 0, 'cost', 0)
set_vars(head)
local pending = {}
for _ = 1, head.messages do
  local seq = take()
  pending[#pending + 1] = seq
  pending[#pending + 1] = take()
  if #pending == 1000 then
    redis.call('ZADD', LOG, unpack(pending))
    pending = {}
  end
end
if #pending > 0 then redis.call('ZADD', LOG, unpack(pending)) end
back(head)
index(head)
save(head)
return { 'ok', told(head) }
