-- How long keys last by themselves.
-- const: HOUR=3600000000

-- Keys outlive the deadline by one to two hours, so that a sweep can tell of the session; then they go by
-- themselves. They are told only once an hour, since telling six keys costs as much as the rest of a write.
-- `bare` names keys that may just have come into being and have no time to live yet.
local function back(n, bare)
  if n[EXPIRES] < 0 then
    if n[BACKED] >= 0 then
      for i = 1, #KEYS do call('PERSIST', KEYS[i]) end
      n[BACKED] = -1
    end
    return
  end
  if n[BACKED] < n[EXPIRES] + HOUR or n[BACKED] > n[EXPIRES] + 2 * HOUR then
    n[BACKED] = n[EXPIRES] + 2 * HOUR
    bare = KEYS
  end
  if bare[1] then
    local ttl = math.max(1, math.ceil((n[BACKED] - now) / 1000))
    for i = 1, #bare do call('PEXPIRE', bare[i], ttl) end
  end
end
