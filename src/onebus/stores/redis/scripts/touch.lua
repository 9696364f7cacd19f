#!lua
--[[
ARGV  now, ttl in ms (empty: leave it, 0: for ever), epoch to create the log with (empty: do not)
With an epoch, a log that exists keeps its ttl.
Returns 1 if the log existed.
]]
local now = clock(ARGV[1])
local ttl, epoch = tonumber(ARGV[2]), ARGV[3]
local found = find_log(now)
if not found and epoch == '' then
    return 0
end
if found and epoch ~= '' then
    ttl = nil
end

local log = found or create_log(now, epoch)
if ttl == 0 and log.ttl > 0 then
    for _, key in ipairs(all_keys(log)) do
        redis.call('PERSIST', key)
    end
end
log.ttl = ttl or log.ttl
renew(log)
save(log)
return found and 1 or 0
