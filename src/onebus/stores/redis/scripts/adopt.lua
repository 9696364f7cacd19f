#!lua
--[[
Adds a batch to a staging log that its sender has just put apart; if there is no such log, nothing is left of the batch.

KEYS  the log's, the one of the batch
ARGV  now, messages and bytes of the batch
Returns the first id; nil if there is no log.
]]
local BATCH = 7

local log = find_log(clock(ARGV[1]))
if not log then
    redis.call('UNLINK', KEYS[BATCH])
    return nil
end
local count, size = tonumber(ARGV[2]), tonumber(ARGV[3])
local first = count_in(log, size, count)
add_apart(log, count, size, KEYS[BATCH])
renew(log)
save(log)
return first
