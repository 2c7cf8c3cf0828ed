-- needs: head lasting read
-- The head alone.
local got, n = reach()
if not got then return n end
local numbers = touched(n, got[1])
return { 'ok', numbers, got[3], got[4], variables(n), 0 }
