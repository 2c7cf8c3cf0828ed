-- needs: head write
-- Remove the session and everything of it.
local head, why = reach()
if not head then return why end
forget_all()
return { 'ok', head.owner, head.who }
