-- What adds batches to a log.

-- The settings of a log stand in ARGV from an index on: epoch if it is new (empty: it is not created), channel of its
-- growth, and its limits.
local function log_at(now, key, settings)
    return find_log(now, key) or ARGV[settings] ~= '' and create_log(now, ARGV[settings], key)
end

-- What trims is not even loaded where the client knows that there is nothing to trim.
local function trim_if_limited(log, settings)
    if ARGV[settings + 2] ~= '' or ARGV[settings + 3] ~= '' or ARGV[settings + 4] ~= '' then
        trim(log, settings + 2)
    end
end

-- Counts a batch to a log, and returns the id of its first message.
local function count_in(log, size, count)
    log.last = log.last + count
    log.bytes = log.bytes + size
    return log.last - count + 1
end

-- Adds a batch that was counted. What follows the count are the field that holds it, and those that name its twin.
local function add(log, count, ...)
    if log.last == count then
        log.fresh.batches = log.keys.batches
    end
    redis.call('XADD', log.keys.batches, log.last, 'n', count, 'e', log.bytes, 't', log.now, ...)
end

-- Adds a batch that was counted and lies apart, at a key that no other log knows.
local function add_apart(log, count, size, key)
    add(log, count, 'x', string.format('%.0f %s', size, key))
    redis.call('ZADD', log.keys.apart, log.last, key)
    if log.ttl > 0 then
        log.fresh.apart, log.fresh[key] = log.keys.apart, key
    else
        redis.call('PERSIST', key)
    end
end

-- Returns the number and the first id of the newest append of a source, if that is `number` or a later one.
local function newest_since(log, mark, number)
    local newest, first_id = string.match(redis.call('HGET', log.keys.log, mark) or '', '^(%d+) (%d+)$')
    if newest and tonumber(number) <= tonumber(newest) then
        return { tonumber(newest), tonumber(first_id) }
    end
end

local function put_mark(log, mark, number, first)
    redis.call('HSET', log.keys.log, mark, string.format('%s %.0f', number, first))
end
