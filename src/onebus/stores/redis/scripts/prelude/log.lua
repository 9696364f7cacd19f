--[[
The logs. This folder is what the scripts share: it is put in front of each of them when they are loaded.

Keys. P is the place of the name (what stands before its first "|"), R is the rest, both with %, { and }
written as %25, %7B and %7D. All keys of a place have the same hash tag, so they live in one slot.

    onebus:{P}R:log      hash    the log itself
        epoch            random text, another one for each life of the log
        waiter           who waits for the next batch: "limit lease_ms redeliver channel owner"; empty: nobody
        last             newest id
        first            oldest id that was not trimmed away
        head             first id that nobody has claimed
        fence            fence of the latest claim with a lease
        bytes            bytes ever appended
        ttl, expires     ms; 0 for a log that lives for ever
        open, free       how many ids are in holds, and how many of those are in :free
        until            when Redis expires the keys by itself, ms
        floor, since     the oldest batch begins at this byte of `bytes` or later, and is of this time or later:
                         so that an append finds out that there is nothing to trim without reading a batch
    onebus:{P}R:batches  stream  id = last id of the batch, fields in this order:
        n                messages
        e                `bytes` at its end
        t                when it was appended, ms
        b                the batch
        o, i             only in a mirror: the log it comes from, and its first id there
    onebus:{P}R:holds    zset    every hold by its first id; a member is "first last fence attempts redeliver owner"
    onebus:{P}R:due      zset    the holds that are leased or delayed, by the time at which that ends, ms
    onebus:{P}R:free     zset    the holds that may be claimed now, by first id
    onebus:{P}R:record   hash    version, ttl, expires, and the fields as "f:<name>"

`expires` decides whether a log or record is still there. Redis also expires the keys by itself, a little later,
so that what nobody asks for any more does not stay for ever. It is told only when that moment has moved far enough.

The batch that covers an id is the first entry of XRANGE from that id on. Redis writes numbers that scripts hand
to it with 17 digits, so ids may be handed over as they are; `..` would cut them to 14.
]]

local LOG_FIELDS = {
    'epoch', 'waiter', 'last', 'first', 'head', 'fence', 'bytes', 'ttl', 'expires', 'open', 'free', 'floor', 'since',
    'until',
}
local TEXT_FIELDS = 2
local FREE = 0
local NO_FENCE = 0
local SLACK_MS = 60000
local MAX_PAGE = 16

-- Time

local function clock(given)
    if given ~= '' then
        return tonumber(given)
    end
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Logs

local function keys_from(index)
    return {
        log = KEYS[index],
        batches = KEYS[index + 1],
        holds = KEYS[index + 2],
        due = KEYS[index + 3],
        free = KEYS[index + 4],
    }
end

local function unlink(keys)
    redis.call('UNLINK', keys.log, keys.batches, keys.holds, keys.due, keys.free)
end

local function find_log(now, index)
    local keys = keys_from(index or 1)
    local values = redis.call('HMGET', keys.log, unpack(LOG_FIELDS))
    if not values[1] then
        return nil
    end
    local log = { keys = keys, now = now, stored = {}, fresh = {} }
    for position, field in ipairs(LOG_FIELDS) do
        log[field] = position <= TEXT_FIELDS and (values[position] or '') or tonumber(values[position])
        log.stored[field] = log[field]
    end
    if log.expires > 0 and log.expires <= now then
        unlink(keys)
        return nil
    end
    return log
end

local function create_log(now, epoch, index)
    local keys = keys_from(index or 1)
    -- Redis forgets the keys of an expired log one by one.
    unlink(keys)
    return {
        keys = keys, now = now, stored = {}, fresh = {}, epoch = epoch, last = 0, first = 1, head = 1, fence = 0, bytes = 0,
        ttl = 0, expires = 0, open = 0, free = 0, floor = 0, since = now,
        ['until'] = 0, waiter = '',
    }
end

-- Returns the keys that Redis has to be told to expire: all when that moment has moved, else those created anew.
local function keys_to_expire(log)
    if log.ttl == 0 then
        log['until'] = 0
        return {}
    end
    local expires = log.expires + SLACK_MS
    if expires - log['until'] <= SLACK_MS / 2 then
        return log.fresh
    end
    log['until'] = expires
    return log.keys
end

local function save(log)
    local changes, keys = {}, keys_to_expire(log)
    for _, field in ipairs(LOG_FIELDS) do
        if log[field] ~= log.stored[field] then
            changes[#changes + 1] = field
            changes[#changes + 1] = log[field]
        end
    end
    if #changes > 0 then
        redis.call('HSET', log.keys.log, unpack(changes))
    end
    for _, key in pairs(keys) do
        redis.call('PEXPIREAT', key, log['until'])
    end
end

local function renew(log)
    log.expires = log.ttl > 0 and log.now + log.ttl or 0
end

