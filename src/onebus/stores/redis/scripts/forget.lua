#!lua flags=allow-oom
--[[
Forgets the messages before an id, in one life of a log.

ARGV  now, before, epoch
Returns the oldest id that remains; nil if there is no log.
]]
local log = find_log(clock(ARGV[1]))
if not log then
    return nil
end
if log.epoch == ARGV[3] then
    forget_before(log, math.min(tonumber(ARGV[2]), log.last + 1))
    save(log)
end
return log.first
