#!lua
--[[
Moves batches from a staging log to the end of another one, and copies them to its mirror if there is one; trims both, and
wakes those who watch them.

KEYS  the log's, the staging log's, then the mirror's if there is one
ARGV  now, the field of the mark in the log (empty: none) and its number,
      log:     epoch if it is new, channel of its growth, max_count, max_bytes, max_age_ms,
      mirror:  the same, and the names of the log and of the mirror,
      the last ids of the batches, in the order in which they are added
Returns the first id in the log; if batches are gone, minus their number; if the log has had the append, the number and the
first id of the newest one of that source.
]]
local LOG, MIRROR, NAMES, IDS = 4, 9, 14, 16

local now = clock(ARGV[1])
local log, mark = log_at(now, 1, LOG), ARGV[2]
local newest = mark ~= '' and newest_since(log, mark, ARGV[3])
if newest then
    return newest
end

local staging = find_log(now, 7)
local batches, gone = {}, 0
for index = IDS, #ARGV do
    local found = staging and redis.call('XRANGE', staging.keys.batches, ARGV[index], ARGV[index])[1]
    local batch = found and parse_batch(found)
    local is_there = batch and (not batch.apart or redis.call('EXISTS', batch.apart) == 1)
    batches[#batches + 1] = is_there and batch or nil
    gone = gone + (is_there and 0 or 1)
end
if gone > 0 then
    return -gone
end

local mirror = #KEYS > 12 and log_at(now, 13, MIRROR)
local first = log.last + 1
for _, batch in ipairs(batches) do
    local count = batch.last - batch.first + 1
    local first_id = count_in(log, batch.size, count)
    if batch.apart and not mirror then
        add_apart(log, count, batch.size, batch.apart)
        redis.call('ZREM', staging.keys.apart, batch.apart)
    else
        local blob = entry_of(batch)[2][8]
        if mirror then
            local first_mirrored = count_in(mirror, batch.size, count)
            add(log, count, 'b', blob, 'o', ARGV[NAMES + 1], 'i', first_mirrored)
            add(mirror, count, 'b', blob, 'o', ARGV[NAMES], 'i', first_id)
        else
            add(log, count, 'b', blob)
        end
    end
    redis.call('XDEL', staging.keys.batches, batch.entry[1])
    unlink_apart(staging.keys, batch.last, batch.last)
end
if mark ~= '' then
    put_mark(log, mark, ARGV[3], first)
end

local function close(grown, settings)
    trim_if_limited(grown, settings)
    renew(grown)
    save(grown)
    redis.call('PUBLISH', ARGV[settings + 1], '')
end
close(log, LOG)
if mirror then
    close(mirror, MIRROR)
end
return first
