#!lua
--[[
Adds a batch to a log and perhaps to its mirror, trims both, and tells those who watch them.

KEYS  the log's, then the mirror's if there is one
ARGV  now, batch, count, capacity of the log (empty: none),
      the field of the mark in the log (empty: none) and its number,
      log:     epoch if it is new, channel of its growth, max_count, max_bytes, max_age_ms,
      mirror:  the same, and the names of the log and of the mirror
Returns the first id in the log; if the batch would exceed its capacity, minus the number of messages that fit; if the
log has had the append, the number and the first id of the newest one of that source; nil if there is no log, and none
is to be created.
]]
local LOG, MIRROR, NAMES = 7, 12, 17
local MAX_NEWS_BYTES = 4000

local now = clock(ARGV[1])
local blob, count = ARGV[2], tonumber(ARGV[3])

-- A small batch travels with the wake-up, in the form that stores/news.py reads.
local function news(log, _, twin_log, _, twin_first)
    if #blob > MAX_NEWS_BYTES then
        return ''
    end
    local head = string.format('%s %.0f %.0f %.0f %.0f %s', log.epoch, log.last, count, now, twin_first or 0, twin_log or '')
    return head .. '\n' .. blob
end

-- Returns how many messages fit into a log to which the batch has been counted already, or nil if the batch does.
local function room_if_full(log, settings, capacity)
    local first = first_to_keep(log, settings + 2)
    local unfinished = log.open + math.max(log.last - count - math.max(log.head, first) + 1, 0)
    if first > log.first then
        for _, member in ipairs(redis.call('ZRANGE', log.keys.holds, '-inf', string.format('(%d', first), 'BYSCORE')) do
            local hold = parse_hold(member)
            unfinished = unfinished - (math.min(hold.last, first - 1) - hold.first + 1)
        end
    end
    if unfinished + math.min(count, log.last - first + 1) > capacity then
        return math.max(capacity - unfinished, 0)
    end
end

-- Claims the batch for whoever waits for it, unless others are to be claimed before; Redis tells if nobody listens.
local function hand_over(log, first, message)
    if log.waiter == '' or message == '' or log.open > 0 or log.head ~= first then
        return
    end
    local waiter = parse_waiter(log.waiter)
    local last, fence = math.min(log.last, first + waiter.limit - 1), log.fence + 1
    log.waiter = ''
    if redis.call('PUBLISH', waiter.channel, string.format('%.0f %.0f %.0f\n', fence, first, last) .. message) == 0 then
        return
    end
    log.fence, log.head = fence, last + 1
    hand_to(waiter, log, first, last, now + waiter.lease_ms)
end

-- What follows the capacity are the fields that name the twin.
local function append(log, settings, capacity, ...)
    local first = count_in(log, #blob, count)
    local room = capacity and room_if_full(log, settings, capacity)
    if room then
        return -room
    end
    add(log, count, 'b', blob, ...)
    trim_if_limited(log, settings)
    renew(log)
    local message = news(log, ...)
    hand_over(log, first, message)
    save(log)
    redis.call('PUBLISH', ARGV[settings + 1], message)
    return first
end

local function append_all(log, capacity)
    if #KEYS == 6 then
        return append(log, LOG, capacity)
    end
    local mirror = log_at(now, 7, MIRROR)
    local first = append(log, LOG, capacity, 'o', ARGV[NAMES + 1], 'i', mirror.last + 1)
    if first > 0 then
        append(mirror, MIRROR, nil, 'o', ARGV[NAMES], 'i', first)
    end
    return first
end

local log, capacity, mark = log_at(now, 1, LOG), tonumber(ARGV[4]), ARGV[5]
if not log then
    return nil
end
if mark == '' then
    return append_all(log, capacity)
end
local newest = newest_since(log, mark, ARGV[6])
if newest then
    return newest
end
local first = append_all(log, capacity)
if first > 0 then
    put_mark(log, mark, ARGV[6], first)
end
return first
