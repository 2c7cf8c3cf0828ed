-- Tell the keys how long they last by themselves.
-- They outlive the deadline by one to two hours, so that a sweep can tell of the session; then they go. They are told
-- only once an hour, since telling them costs as much as the rest of a write.
if n[EXPIRES] < 0 then
  if n[BACKED] >= 0 then
    for i = 1, #KEYS do call('PERSIST', KEYS[i]) end
    n[BACKED] = -1
  end
elseif n[BACKED] < n[EXPIRES] + HOUR or n[BACKED] > n[EXPIRES] + 2 * HOUR then
  n[BACKED] = n[EXPIRES] + 2 * HOUR
  local ttl = math.max(1, math.ceil((n[BACKED] - now) / 1000))
  for i = 1, #KEYS do call('PEXPIRE', KEYS[i], ttl) end
end
