#!lua flags=allow-oom
-- Ends a log and returns 1 if it existed. ARGV: now
local log = find_log(clock(ARGV[1]))
if not log then
    return 0
end
unlink(log.keys)
return 1
