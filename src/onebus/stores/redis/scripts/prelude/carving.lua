-- Finding holds, and cutting leases out of them.

local function with_range(hold, first, last)
    return {
        first = first, last = last, fence = hold.fence,
        attempts = hold.attempts, redeliver = hold.redeliver, owner = hold.owner,
    }
end

-- Returns when the hold was due.
local function drop_hold(log, hold)
    local member = pack_hold(hold)
    redis.call('ZREM', log.keys.holds, member)
    log.open = log.open - count_of(hold)
    local due = redis.call('ZSCORE', log.keys.due, member)
    if due then
        redis.call('ZREM', log.keys.due, member)
        return tonumber(due)
    end
    redis.call('ZREM', log.keys.free, member)
    log.free = log.free - count_of(hold)
    return FREE
end

local function hold_before(log, id)
    local members = redis.call(
        'ZRANGE', log.keys.holds, string.format('(%d', id), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1
    )
    return parse_hold(members[1])
end

local function hold_from(log, id)
    return parse_hold(redis.call('ZRANGE', log.keys.holds, id, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1])
end

local function hold_at(log, id)
    local before = hold_before(log, id + 1)
    if before and before.last >= id then
        return before
    end
    return hold_from(log, id + 1)
end

--[[
Cuts leases out of the holds, as `carve` in onebus/log/claims.py does. Leases stand in ARGV from `index` on as
first, last, fence, sorted by their first ids, so one sweep over leases and holds is enough.

Returns what was taken, as holds that are in no set any more, and the lost ranges as first, last, first, last, …
]]
local function carve(log, now, index)
    local taken, lost = {}, {}
    local hold, due, position

    local function obeys(fence)
        if fence == ANY_FENCE then
            local ends = due or tonumber(redis.call('ZSCORE', log.keys.due, pack_hold(hold)) or FREE)
            return hold.fence ~= NO_FENCE and ends > now
        end
        return hold.fence == fence and fence ~= NO_FENCE
    end

    local function leave_hold()
        if due and position <= hold.last then
            add_hold(log, with_range(hold, position, hold.last), due)
        end
    end

    local function enter_hold(found)
        hold, due, position = found, nil, found and found.first
    end

    local function cut(first, last)
        due = due or drop_hold(log, hold)
        if position < first then
            add_hold(log, with_range(hold, position, first - 1), due)
        end
        taken[#taken + 1] = with_range(hold, first, last)
        position = last + 1
    end

    local function lose(first, last)
        if first <= last then
            lost[#lost + 1] = first
            lost[#lost + 1] = last
        end
    end

    for argument = index, #ARGV, 3 do
        local first, last = tonumber(ARGV[argument]), tonumber(ARGV[argument + 1])
        local fence = tonumber(ARGV[argument + 2])
        local at = first
        if not hold or first < hold.first or hold.last < first then
            leave_hold()
            enter_hold(hold_at(log, first))
        end
        while hold and hold.first <= last do
            local from, to = math.max(position, first), math.min(hold.last, last)
            if from <= to and obeys(fence) then
                cut(from, to)
                lose(at, from - 1)
                at = to + 1
            end
            if hold.last >= last then
                break
            end
            leave_hold()
            enter_hold(hold_from(log, hold.last + 1))
        end
        lose(at, last)
    end
    leave_hold()
    return taken, lost
end
