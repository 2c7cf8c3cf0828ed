-- Names and values in turn, or 0 when there are none.
local variables = n[HAS_VARS] == 1 and call('HGETALL', VARS) or 0
