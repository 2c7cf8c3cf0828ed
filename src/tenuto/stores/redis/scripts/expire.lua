-- needs: head write
-- Remove the session if its retention is over; say when to look again if it is not.
local head, why = load()
if not head then return { why } end
if head.expires and head.expires <= now then
  forget_all()
  return { 'gone', head.owner, head.who }
end
redis.call('HSET', HEAD, 'indexed', head.expires or '')
return { 'kept', head.expires or '' }
