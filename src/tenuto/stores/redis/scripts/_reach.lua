-- Read the whole head; return to the caller at once where there is nothing for it.
local raw, facts, title = unpack(call('HMGET', HEAD, 's', 'f', 't'))
-- include: check
if answer then return answer end
if not (facts and title) then return { 'corrupt', '' } end
