-- What every script of a session begins with: who asks, and when.
--
-- KEYS: head, log, vars, traces; all under one hash tag.
-- ARGV: the caller's owner ('' reaches all), the site's shelf ('' where shelves lie on other servers), the key of
--       the expiry index, the session key; numbers (the first is the time); then what the script itself takes.
-- The head is a hash: s numbers and the owner, f facts that never change, i incarnation, t title, l lease, c the
-- turn closed last; k<key> what an idempotency key stands for, r<place> which key came when, p<producer> its last
-- number. Instants are microseconds, -1 means none. Bodies are opaque here.
--
-- Counted in instructions, a script that does nothing costs 13,000, a word of its call 1,000, a call of the server
-- from Lua 10,000 and more, a value in an answer 1,300, a function that the script makes for itself as much, and a
-- message that passes through Lua 5,000; a number that becomes text 4,000. So parts are written in where they are used instead of being functions,
-- numbers travel as one string, and an answer says only what the caller does not know.
-- const: HEAD=KEYS[1] LOG=KEYS[2] VARS=KEYS[3] TRACES=KEYS[4]
-- const: FORMAT=2 SIZE=192 LAYOUT='>i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8'
-- const: VERSION=2 CREATED=3 UPDATED=4 EXPIRES=5 IDLE=6 TOUCH=7 MAX_MESSAGES=8 MAX_TURNS=9 STATUS=10 TURNS=11
-- const: MESSAGES=12 SEQ=13 WINDOW=14 TOKENS=15 COST=17 LEASE_UNTIL=19 KEYS_SEEN=20 HAS_VARS=21 INDEXED=22
-- const: BACKED=23 EPOCH=24 ON_READ=0 NEVER=2 HOUR=3600000000
local KEYS, ARGV, call, unpack, struct, string = KEYS, ARGV, redis.call, unpack, struct, string
local caller, now = ARGV[1], struct.unpack('>i8', ARGV[5])
