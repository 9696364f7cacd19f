#!lua flags=allow-oom
-- Returns first, last and epoch of a log; nil if there is no log. ARGV: now
local log = find_log(clock(ARGV[1]))
return log and { log.first, log.last, log.epoch }
