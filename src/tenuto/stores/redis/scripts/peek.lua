-- needs: head
-- The head as it stands, whoever asks: for listings, which check the scope themselves.
local head, why = load()
if not head then return { why } end
return { 'ok', told(head) }
