#!lua
--[[
Adds a batch to a log and perhaps to its mirror, trims both, and tells those who watch them.

KEYS  the log's, then the mirror's if there is one
ARGV  now, batch, count,
      log:     epoch if it is new, channel of its growth, max_count, max_bytes, max_age_ms,
      mirror:  the same, and the log's name
Returns the first id in the log.
]]
local LOG, MIRROR, ORIGIN = 4, 9, 14
local MAX_NEWS_BYTES = 4000

local now = clock(ARGV[1])
local blob, count = ARGV[2], tonumber(ARGV[3])

-- A small batch travels with the wake-up, in the form that stores/news.py reads.
local function news(log, _, origin_log, _, origin_first)
    if #blob > MAX_NEWS_BYTES then
        return ''
    end
    local head = string.format('%s %.0f %.0f %.0f %.0f %s', log.epoch, log.last, count, now, origin_first or 0, origin_log or '')
    return head .. '\n' .. blob
end

local function append(key, settings, ...)
    local log = find_log(now, key) or create_log(now, ARGV[settings], key)
    local first = log.last + 1
    log.last = log.last + count
    log.bytes = log.bytes + #blob
    redis.call('XADD', log.keys.batches, log.last, 'n', count, 'e', log.bytes, 't', now, 'b', blob, ...)
    trim(log, settings + 2)
    renew(log)
    save(log)
    redis.call('PUBLISH', ARGV[settings + 1], news(log, ...))
    return first
end

local first = append(1, LOG)
if #KEYS > 5 then
    append(6, MIRROR, 'o', ARGV[ORIGIN], 'i', first)
end
return first
