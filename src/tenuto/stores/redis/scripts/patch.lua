-- needs: head write
-- Change the head.
local expected = take()
local head, why = reach()
if not head then return why end
if expected ~= '' and tonumber(expected) ~= head.version then return { 'version', head.version } end
apply(head)
changed(head)
return { 'ok', told(head) }
