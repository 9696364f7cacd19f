#!lua flags=allow-oom
-- Forgets the newest append of a source. ARGV: now, field of the mark
local log = find_log(clock(ARGV[1]))
if log then
    redis.call('HDEL', log.keys.log, ARGV[2])
end
return nil
