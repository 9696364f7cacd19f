-- Who holds which ids; the rules are those of onebus/log/claims.py.

local function pack_hold(hold)
    return string.format(
        '%d %d %d %d %d %s', hold.first, hold.last, hold.fence, hold.attempts, hold.redeliver, hold.owner
    )
end

local function parse_hold(member)
    if not member then
        return nil
    end
    local first, last, fence, attempts, redeliver, owner =
        string.match(member, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    return {
        first = tonumber(first), last = tonumber(last), fence = tonumber(fence),
        attempts = tonumber(attempts), redeliver = tonumber(redeliver), owner = owner,
    }
end

local function count_of(hold)
    return hold.last - hold.first + 1
end

-- Adds to a set of holds. One that had run empty is created anew, and knows nothing of its expiry.
local function add_to(log, set, score, member, is_empty)
    redis.call('ZADD', log.keys[set], score, member)
    if is_empty then
        log.fresh[set] = log.keys[set]
    end
end

local function add_hold(log, hold, due)
    local member = pack_hold(hold)
    add_to(log, 'holds', hold.first, member, log.open == 0)
    if due == FREE then
        add_to(log, 'free', hold.first, member, log.free == 0)
        log.free = log.free + count_of(hold)
    else
        add_to(log, 'due', due, member, log.open == log.free)
    end
    log.open = log.open + count_of(hold)
end

-- Who waits for messages that are still to come.

local function wait_on(log, channel, limit, lease_ms, redeliver, owner)
    log.waiter = string.format('%d %d %d %s %s', limit, lease_ms, redeliver, channel, owner)
end

local function parse_waiter(text)
    local limit, lease_ms, redeliver, channel, owner = string.match(text, '^(%d+) (%d+) (%d+) (%S+) (.*)$')
    return {
        limit = tonumber(limit), lease_ms = tonumber(lease_ms), redeliver = tonumber(redeliver),
        channel = channel, owner = owner,
    }
end

local function waits_on(log, channel)
    return log.waiter ~= '' and parse_waiter(log.waiter).channel == channel
end

--[[
What an append hands over is noted in the log itself, and becomes a hold like others when the next script comes by: the
message is on its way sooner.
]]
local function hand_to(waiter, log, first, last, due)
    local hold = {
        first = first, last = last, fence = log.fence, attempts = 1, redeliver = waiter.redeliver, owner = waiter.owner,
    }
    log.handed = string.format('%.0f %s', due, pack_hold(hold))
end

local function find_log(now, index)
    local log = load_log(now, index)
    if log and log.handed ~= '' then
        local due, member = string.match(log.handed, '^(%d+) (.*)$')
        log.handed = ''
        add_hold(log, parse_hold(member), tonumber(due))
        save(log)
    end
    return log
end
