#!lua flags=allow-oom
--[[
Hands nothing over to a waiter any more.

ARGV  now, channel of the waiter, owner
Returns what the owner holds, as first, last, fence, …
]]
local log = find_log(clock(ARGV[1]))
local held = {}
if not log then
    return held
end
if waits_on(log, ARGV[2]) then
    log.waiter = ''
    save(log)
end
if log.open > 0 then
    for _, member in ipairs(redis.call('ZRANGE', log.keys.holds, 0, -1)) do
        local hold = parse_hold(member)
        if hold.owner == ARGV[3] then
            held[#held + 1] = hold.first
            held[#held + 1] = hold.last
            held[#held + 1] = hold.fence
        end
    end
end
return held
