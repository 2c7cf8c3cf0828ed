-- A record with its newest messages and the parts beside it, without what the caller holds; false if there is none.
local function standing(record, entries, tail, message, page)
  local row = call('HMGET', record, 'n', 'h', 'p', 'd')
  if not row[1] then return false end
  row[5] = call('ZRANGEBYSCORE', entries .. ':k', '(' .. page, '+inf')
  row[6] = call('ZRANGE', entries .. ':p', 0, -1)
  if tail ~= '0' then
    row[7] = call('ZREVRANGEBYSCORE', entries .. ':m', '+inf', '(' .. message, 'LIMIT', 0, tail)
  end
  return row
end
