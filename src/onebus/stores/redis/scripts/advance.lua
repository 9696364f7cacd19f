#!lua
--[[
Counts a batch to a staging log whose newest id is known; whoever calls this adds the batch itself, right after it.

ARGV  now, newest id before, messages and bytes of the batch
Returns 1; 0 if there is no such log, or if somebody else has added something to it.
]]
local log = find_log(clock(ARGV[1]))
if not log or log.last ~= tonumber(ARGV[2]) then
    return 0
end
log.last = log.last + ARGV[3]
log.bytes = log.bytes + ARGV[4]
renew(log)
save(log)
return 1
