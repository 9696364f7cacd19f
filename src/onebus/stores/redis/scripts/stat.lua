#!lua flags=allow-oom
--[[
ARGV  now
Returns epoch, first, last, head, claimable, held, bytes, ttl; nil if there is no log.
]]
local now = clock(ARGV[1])
local log = find_log(now)
if not log then
    return nil
end

local overdue = 0
for _, member in ipairs(redis.call('ZRANGE', log.keys.due, '-inf', now, 'BYSCORE')) do
    overdue = overdue + count_of(parse_hold(member))
end
local free = log.free + overdue
local oldest = batch_at(reader_of(log), 0)
local bytes = oldest and log.bytes - oldest.ends + oldest.size or 0
return {
    log.epoch, log.first, log.last, log.head, log.last - log.head + 1 + free, log.open - free, bytes, log.ttl,
}
