-- needs: head
-- The head alone.
local head, why = reach()
if not head then return why end
touch(head)
return { 'ok', told(head) }
