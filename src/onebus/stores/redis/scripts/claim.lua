#!lua flags=allow-oom
--[[
Settles leases, then takes messages: freed ones first, then new ones.

ARGV  now, limit, max_bytes, lease_ms (empty: done at once), redeliver, owner, channel on which to hand over what
      comes next if there is nothing now (empty: none), leases to settle
Returns the fence, the leases as first, last, attempts, …, the entries of their batches, the lost ranges, and
in how many ms a hold becomes free (-1: none does, or the limit was reached); nil if there is no log.
]]
local LEASES = 8

local now = clock(ARGV[1])
local log = find_log(now)
if not log then
    return nil
end
local room, room_bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
local lease_ms, redeliver, owner, channel = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], ARGV[7]
local fence = lease_ms and log.fence + 1 or NO_FENCE
local taken, entries = {}, {}
local changed = false

local function settle()
    local settled, lost = carve(log, now, LEASES)
    discard(log, settled)
    changed = #settled > 0
    return lost
end

-- Frees what is due. A hold that is not redelivered is done instead.
local function free_due()
    if log.open == log.free then
        return
    end
    local members = redis.call('ZRANGE', log.keys.due, '-inf', now, 'BYSCORE')
    local ended = {}
    for _, member in ipairs(members) do
        local hold = parse_hold(member)
        drop_hold(log, hold)
        if hold.redeliver == 1 then
            add_hold(log, hold, FREE)
        else
            ended[#ended + 1] = hold
        end
    end
    discard(log, ended)
    changed = changed or #members > 0
end

-- Collects the batches that cover these ids while they fit, and returns the last id covered.
local function cover(reader, first, last)
    local covered = first - 1
    while covered < last do
        local batch = batch_at(reader, covered + 1, last - covered, room_bytes)
        if not batch or (not batch.collected and #entries > 0 and batch.size > room_bytes) then
            break
        end
        if not batch.collected then
            batch.collected = true
            entries[#entries + 1] = entry_of(batch)
            room_bytes = room_bytes - batch.size
        end
        covered = math.min(batch.last, last)
    end
    return covered
end

local function oldest_free()
    if log.free == 0 then
        return nil
    end
    return parse_hold(redis.call('ZRANGE', log.keys.free, 0, 0)[1])
end

local function unclaimed()
    if log.head > log.last then
        return nil
    end
    return { first = log.head, last = log.last, fence = NO_FENCE, attempts = 0, is_new = true }
end

local function take_from(hold, covered)
    if hold.is_new then
        log.head = covered + 1
    else
        drop_hold(log, hold)
        if covered < hold.last then
            add_hold(log, with_range(hold, covered + 1, hold.last), FREE)
        end
    end
    room = room - (covered - hold.first + 1)
    taken[#taken + 1] = {
        first = hold.first, last = covered, fence = fence,
        attempts = hold.attempts + 1, redeliver = redeliver, owner = owner,
    }
end

local function take()
    local reader = reader_of(log)
    while room > 0 do
        local hold = oldest_free() or unclaimed()
        if not hold then
            return
        end
        local wanted = math.min(hold.last, hold.first + room - 1)
        local covered = cover(reader, hold.first, wanted)
        if covered >= hold.first then
            take_from(hold, covered)
        end
        if covered < wanted then
            return
        end
    end
end

local function keep_taken()
    if not lease_ms then
        discard(log, taken)
        return
    end
    log.fence = fence
    for _, hold in ipairs(taken) do
        add_hold(log, hold, now + lease_ms)
    end
end

local function retry_after_ms()
    if room == 0 or log.open == log.free then
        return -1
    end
    local next_due = redis.call('ZRANGE', log.keys.due, 0, 0, 'WITHSCORES')[2]
    return math.max(tonumber(next_due) - now, 0)
end

local lost = settle()
free_due()
take()
if #taken > 0 then
    keep_taken()
    changed = true
end
if channel ~= '' then
    if #taken == 0 then
        wait_on(log, channel, tonumber(ARGV[2]), lease_ms, redeliver, owner)
        changed = true
    elseif waits_on(log, channel) then
        log.waiter = ''
    end
end
if changed then
    save(log)
end

local leases = {}
for _, hold in ipairs(taken) do
    leases[#leases + 1] = hold.first
    leases[#leases + 1] = hold.last
    leases[#leases + 1] = hold.attempts
end
return { fence, leases, entries, lost, retry_after_ms() }
