-- needs: head write
-- Remove the session if it has not changed since it stood at this place of its shelf.
local at = tonumber(take())
local head, why = load()
if not head then return { why } end
if head.updated ~= at then return { 'moved', head.updated } end
forget_all()
return { 'gone', head.owner, head.who }
