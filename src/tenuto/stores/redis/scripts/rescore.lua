-- Moves a place in an index, unless its score is another one by now. KEYS: the index. ARGV: member, score, new score.
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if score and tonumber(score) == tonumber(ARGV[2]) then redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1]) end
return 1
