-- Make a session as another store held it, in place of any that is here.
-- ARGV: how many messages are staged, how many fields of the head, variables, messages and traces; numbers and owner,
-- facts, title, incarnation; then names and values, or numbers and members, of each in turn.
-- include: head
local _, staged, fields, sets, count, traced = struct.unpack('>i8i8i8i8i8i8', ARGV[5])
local n, owner = { struct.unpack(LAYOUT, ARGV[6]) }, string.sub(ARGV[6], SIZE + 1)
local facts, title, incarnation, at = ARGV[7], ARGV[8], ARGV[9], 10
local stage = string.gsub(LOG, ':m:{', ':c:{')
if staged > 0 and call('ZCARD', stage) ~= staged then return 'unstaged' end
call('HSET', HEAD, 'f', facts)
call('UNLINK', HEAD, LOG, VARS, TRACES)
if staged > 0 then
  call('COPY', stage, LOG)
  call('PERSIST', LOG)
end
-- include: gone
call('ZADD', LOG, 0, '-')
call('HSET', VARS, '-', '')
call('ZADD', TRACES, 0, '-')
local function place(command, key, amount)
  local last = at + 2 * amount - 1
  for i = at, last, 1000 do call(command, key, unpack(ARGV, i, math.min(i + 999, last))) end
  at = last + 1
end
place('HSET', HEAD, fields)
place('HSET', VARS, sets)
place('ZADD', LOG, count)
place('ZADD', TRACES, traced)
call('HSET', HEAD, 'f', facts, 't', title, 'i', incarnation)
n[BACKED], n[INDEXED] = -1, n[EXPIRES]
-- include: back
local shelf = ARGV[2]
if shelf ~= '' then
  redis.pcall('ZADD', shelf, n[UPDATED], ARGV[4])
  if owner ~= '' then redis.pcall('ZADD', string.sub(shelf, 1, -34) .. owner .. '}', n[UPDATED], ARGV[4]) end
  if n[EXPIRES] >= 0 then redis.pcall('ZADD', ARGV[3], n[EXPIRES], facts) end
  redis.pcall('ZADD', string.sub(shelf, 1, -38) .. ':l', 0, string.sub(shelf, -33, -2))
end
call('HSET', HEAD, 's', struct.pack(LAYOUT, unpack(n)) .. owner)
return 'ok'
