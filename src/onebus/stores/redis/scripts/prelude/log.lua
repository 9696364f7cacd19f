--[[
The logs. This folder is what the scripts share: it is put in front of each of them when they are loaded.

Keys. P is the place of the name (what stands before its first "|"), R is the rest, both with %, { and }
written as %25, %7B and %7D. All keys of a place have the same hash tag, so they live in one slot.

    onebus:{P}R:log      hash    the log itself
        epoch            random text, another one for each life of the log
        waiter           who waits for the next batch: "limit lease_ms redeliver channel owner"; empty: nobody
        handed           what the last append has claimed for a waiter: "due member-of-holds"; empty: nothing
        expires          ms; 0 for a log that lives for ever
        m:<source>       the newest append that a source has numbered: "number first-id"
        state            these numbers as doubles, little-endian: reading them one by one takes most scripts the longest
            last         newest id
            first        oldest id that was not trimmed away
            head         first id that nobody has claimed
            fence        fence of the latest claim with a lease
            bytes        bytes ever appended
            ttl          ms; 0 for a log that lives for ever
            open, free   how many ids are in holds, and how many of those are in :free
            retired      when Redis expires the keys by itself, ms
            floor, since the oldest batch begins at this byte of `bytes` or later, and is of this time or later:
                         so that an append finds out that there is nothing to trim without reading a batch
    onebus:{P}R:batches  stream  id = last id of the batch, fields in this order:
        n                messages
        e                `bytes` at its end
        t                when it was appended, ms
        b, or x          the batch; or its bytes and the key where it lies apart from Lua, which looks at each byte it gets
        o, i             where else it is, if it was appended to two logs: the other one, and its first id there
    onebus:{P}R:holds    zset    every hold by its first id; a member is "first last fence attempts redeliver owner"
    onebus:{P}R:due      zset    the holds that are leased or delayed, by the time at which that ends, ms
    onebus:{P}R:free     zset    the holds that may be claimed now, by first id
    onebus:{P}R:apart    zset    the keys of the batches that lie apart, by the last ids of those
    onebus:{P}S:apart:T  string  a batch that lies apart, since it was staged in the log S; only one log knows it
    onebus:{P}R:record   hash    version, ttl, expires, and the fields as "f:<name>"

`expires` decides whether a log or record is still there. Redis also expires the keys by itself, a little later,
so that what nobody asks for any more does not stay for ever. It is told only when that moment has moved far enough.

The batch that covers an id is the first entry of XRANGE from that id on. Redis writes numbers that scripts hand
to it with 17 digits, so ids may be handed over as they are; `..` would cut them to 14.
]]

local STATE = '<ddddddddddd'
local FREE = 0
local NO_FENCE = 0
local ANY_FENCE = -1
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
        apart = KEYS[index + 5],
    }
end

-- Forgets the batches that lie apart and end between two ids.
local function unlink_apart(keys, first, last)
    local apart = redis.call('ZRANGE', keys.apart, first, last, 'BYSCORE')
    if #apart > 0 then
        for _, key in ipairs(apart) do
            redis.call('UNLINK', key)
        end
        redis.call('ZREMRANGEBYSCORE', keys.apart, first, last)
    end
end

local function unlink(keys)
    unlink_apart(keys, '-inf', '+inf')
    redis.call('UNLINK', keys.log, keys.batches, keys.holds, keys.due, keys.free)
end

local function all_keys(log)
    local keys = redis.call('ZRANGE', log.keys.apart, 0, -1)
    for _, key in pairs(log.keys) do
        keys[#keys + 1] = key
    end
    return keys
end

local function load_log(now, index)
    local keys = keys_from(index or 1)
    local stored = redis.call('HMGET', keys.log, 'epoch', 'waiter', 'handed', 'expires', 'state')
    if not stored[1] then
        return nil
    end
    local log = {
        keys = keys, now = now, stored = stored, fresh = {},
        epoch = stored[1], waiter = stored[2], handed = stored[3], expires = tonumber(stored[4]),
    }
    if log.expires > 0 and log.expires <= now then
        unlink(keys)
        return nil
    end
    log.last, log.first, log.head, log.fence, log.bytes, log.ttl, log.open, log.free, log.retired, log.floor, log.since =
        struct.unpack(STATE, stored[5])
    return log
end

local function create_log(now, epoch, index)
    local keys = keys_from(index or 1)
    -- Redis forgets the keys of an expired log one by one.
    unlink(keys)
    return {
        keys = keys, now = now, stored = {}, fresh = {}, epoch = epoch, waiter = '', handed = '', expires = 0,
        last = 0, first = 1, head = 1, fence = 0, bytes = 0, ttl = 0, open = 0, free = 0, retired = 0, floor = 0, since = now,
    }
end

-- Returns the keys that Redis has to be told to expire: all when that moment has moved, else those created anew.
local function keys_to_expire(log)
    if log.ttl == 0 then
        log.retired = 0
        return {}
    end
    local retired = log.expires + SLACK_MS
    if retired - log.retired <= SLACK_MS / 2 then
        return log.fresh
    end
    log.retired = retired
    return all_keys(log)
end

local function save(log)
    local keys, stored = keys_to_expire(log), log.stored
    local state = struct.pack(
        STATE, log.last, log.first, log.head, log.fence, log.bytes, log.ttl, log.open, log.free, log.retired, log.floor,
        log.since
    )
    local expires = string.format('%.0f', log.expires)
    if log.waiter == stored[2] and log.handed == stored[3] and expires == stored[4] then
        redis.call('HSET', log.keys.log, 'state', state)
    else
        log.stored = { log.epoch, log.waiter, log.handed, expires, state }
        redis.call(
            'HSET', log.keys.log,
            'epoch', log.epoch, 'waiter', log.waiter, 'handed', log.handed, 'expires', expires, 'state', state
        )
    end
    for _, key in pairs(keys) do
        redis.call('PEXPIREAT', key, log.retired)
    end
    log.fresh = {}
end

local function renew(log)
    log.expires = log.ttl > 0 and log.now + log.ttl or 0
end

