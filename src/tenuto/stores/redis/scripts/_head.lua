-- A session's head: read and checked. Every script of a session begins with this part.
--
-- KEYS: head, log, vars; all under one hash tag.
-- ARGV: the caller's owner ('' reaches all), the site's shelf ('' where shelves lie on other servers), the key of
--       the expiry index, the session key; numbers (the first is the time); then what the script itself takes.
-- The head is a hash: s numbers, f facts that never change, o owner, i incarnation, t title, l lease, c the turn
-- closed last; k<key> what an idempotency key stands for, r<place> which key came when, p<producer> its last
-- number. Instants are microseconds, -1 means none. Bodies are opaque here.
--
-- Counted in instructions, a value that passes between Lua and the server costs 1,500, a table in an answer 5,000
-- and a local that a function refers to 300. So all numbers travel as one string, answers are flat, and constants
-- are written in by the loader.
-- const: FORMAT=1 SIZE=192 LAYOUT='>i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8'
-- const: VERSION=2 CREATED=3 UPDATED=4 EXPIRES=5 IDLE=6 TOUCH=7 MAX_MESSAGES=8 MAX_TURNS=9 STATUS=10 TURNS=11
-- const: MESSAGES=12 SEQ=13 WINDOW=14 TOKENS=15 COST=17 LEASE_UNTIL=19 KEYS_SEEN=20 HAS_VARS=21 INDEXED=22 BACKED=23 EPOCH=24
-- const: ON_READ=0 NEVER=2
local call, unpack, struct = redis.call, unpack, struct
local HEAD, LOG, VARS = unpack(KEYS)
local caller = ARGV[1]
local now = struct.unpack('>i8', ARGV[5])

-- The numbers of a head, or nil and why not: corrupt, or written by a newer release.
local function numbers_of(raw)
  local format = #raw >= 8 and struct.unpack('>i8', raw)
  if #raw == SIZE and format == FORMAT then return { struct.unpack(LAYOUT, raw) } end
  return nil, format and format > FORMAT and format < 1000 and 'newer' or 'corrupt'
end

-- The fields numbers, owner, facts and title, then the others that were named; and the numbers once more, read.
-- Or nil and an answer that says why there is nothing for the caller.
local function reach(...)
  local got = call('HMGET', HEAD, 's', 'o', 'f', 't', ...)
  local n, why = numbers_of(got[1] or '')
  if not n then
    if not got[1] and call('EXISTS', HEAD) == 0 then why = 'absent' end
    -- What is absent takes as long as what is there and not for the caller: time must not tell them apart.
    local decoy = string.rep('-', SIZE)
    local _ = { struct.unpack(LAYOUT, decoy) }
    return nil, { why, string.sub(decoy, 1, 150) }
  end
  if not (got[2] and got[3] and got[4]) then return nil, { 'corrupt', '' } end
  if n[EXPIRES] >= 0 and n[EXPIRES] <= now then return nil, { 'expired', got[3] } end
  if caller ~= '' and caller ~= got[2] then return nil, { 'foreign', got[3] } end
  return got, n
end

-- Names and values in turn, or 0 when there are none.
local function variables(n)
  return n[HAS_VARS] == 1 and call('HGETALL', VARS) or 0
end
