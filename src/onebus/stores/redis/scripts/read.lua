#!lua flags=allow-oom
--[[
ARGV  now, after, limit, max_bytes
Returns first, last, epoch and the entries of the batches that follow; nil if there is no log.
]]
local log = find_log(clock(ARGV[1]))
if not log then
    return nil
end
local after = math.max(tonumber(ARGV[2]), log.first - 1)
local room, room_bytes = tonumber(ARGV[3]), tonumber(ARGV[4])

local entries = {}
local reader = reader_of(log)
while after < log.last do
    local batch = batch_at(reader, after + 1, room, room_bytes)
    if not batch then
        break
    end
    local count = batch.last - math.max(after, batch.first - 1)
    if #entries > 0 and (count > room or batch.size > room_bytes) then
        break
    end
    entries[#entries + 1] = entry_of(batch)
    room, room_bytes = room - count, room_bytes - batch.size
    after = batch.last
end
return { log.first, log.last, log.epoch, entries }
