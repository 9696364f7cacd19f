#!lua flags=allow-oom
--[[
ARGV  now
Returns first, last, 1 if they are held or else 0, … of the ids that are not done; nil if there is no log.
]]
local now = clock(ARGV[1])
local log = find_log(now)
if not log then
    return nil
end

local held = {}
for _, member in ipairs(redis.call('ZRANGE', log.keys.due, string.format('(%d', now), '+inf', 'BYSCORE')) do
    held[member] = true
end
local free = {}
for _, member in ipairs(redis.call('ZRANGE', log.keys.free, 0, -1)) do
    free[member] = true
end
local spans = {}
for _, member in ipairs(redis.call('ZRANGE', log.keys.holds, 0, -1)) do
    local hold = parse_hold(member)
    -- What is overdue is claimable again, or done.
    if held[member] or free[member] or hold.redeliver == 1 then
        spans[#spans + 1] = hold.first
        spans[#spans + 1] = hold.last
        spans[#spans + 1] = held[member] and 1 or 0
    end
end
if log.head <= log.last then
    spans[#spans + 1] = log.head
    spans[#spans + 1] = log.last
    spans[#spans + 1] = 0
end
return spans
