#!lua flags=allow-oom
--[[
ARGV  now, max_count, max_bytes, max_age_ms
Returns the oldest id that remains; nil if there is no log.
]]
local log = find_log(clock(ARGV[1]))
if not log then
    return nil
end
trim(log, 2)
save(log)
return log.first
