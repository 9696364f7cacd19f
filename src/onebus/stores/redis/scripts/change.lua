#!lua flags=allow-oom
--[[
Settles, releases or extends leases.

ARGV  now, "settle" | "release" | "extend", delay or lease in ms, change of attempts, channel of the log's growth,
      leases
Returns the lost ranges; nil if there is no log.
]]
local LEASES = 6

local now = clock(ARGV[1])
local action, wait_ms, attempts = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local log = find_log(now)
if not log then
    return nil
end

local taken, lost = carve(log, now, LEASES)
if #taken == 0 then
    return lost
end
if action == 'settle' then
    discard(log, taken)
else
    local due = wait_ms > 0 and now + wait_ms or FREE
    for _, hold in ipairs(taken) do
        if action == 'release' then
            hold.fence, hold.redeliver = NO_FENCE, 1
            hold.attempts = hold.attempts + attempts
        end
        add_hold(log, hold, due)
    end
end
save(log)
if action == 'release' then
    redis.call('PUBLISH', ARGV[5], '')
end
return lost
