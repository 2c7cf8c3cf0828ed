-- needs: head lasting write
-- Forget messages, context, metadata and idempotency keys; title, attributes, totals and marks stay.
local got, n = reach()
if not got then return n end
call('UNLINK', LOG, KEYED, ORDER)
call('HDEL', HEAD, 'l', 'c')
n[HAS_KEYS], n[LEASE_UNTIL], n[MESSAGES], n[WINDOW] = 0, -1, 0, n[SEQ] + 1
if n[HAS_VARS] == 1 then
  for _, name in ipairs(call('HKEYS', VARS)) do
    if string.sub(name, 1, 1) ~= 'a' then call('HDEL', VARS, name) end
  end
end
local numbers, due = changed(n, got[2])
return { 'ok', numbers, got[3], got[4], variables(n), due }
