-- What is deleted when: batches that are done, and whatever exceeds the limits of a log.

-- Deletes the batches that end before `id`.
local function delete_before(log, id)
    redis.call('XTRIM', log.keys.batches, 'MINID', id)
    unlink_apart(log.keys, '-inf', string.format('(%.0f', id))
end

-- Deletes the batches that begin at `first` or later and end between `id` and `last`.
local function delete_within(log, first, id, last)
    repeat
        local page = redis.call('XRANGE', log.keys.batches, id, last, 'COUNT', MAX_PAGE)
        for _, entry in ipairs(page) do
            local batch = parse_batch(entry)
            if batch.first >= first then
                redis.call('XDEL', log.keys.batches, entry[1])
                unlink_apart(log.keys, batch.last, batch.last)
            end
            id = batch.last + 1
        end
    until #page < MAX_PAGE
end

--[[
Deletes the batches that had their last open id among `done`.

All ids between two neighbouring holds are done, and so is every batch in between. At the front of the log, where
nearly all settling happens, that is one XTRIM, which looks at no batch. Elsewhere the batches are read to
learn where they begin. An index of their bounds would spare that, but costs every append a write and about as much
memory as a small message, whereas reading them again costs no more than the claim that read them first.
]]
local function discard(log, done)
    table.sort(done, function(one, other) return one.first < other.first end)
    local done_to = 0
    for _, piece in ipairs(done) do
        if piece.last > done_to then
            local before, after
            if log.open > 0 then
                before, after = hold_before(log, piece.first), hold_from(log, piece.last + 1)
            end
            done_to = after and after.first - 1 or log.head - 1
            if before then
                delete_within(log, before.last + 1, piece.first, done_to)
            else
                delete_before(log, done_to + 1)
            end
        end
    end
end

local function forget_before(log, first)
    if first <= log.first then
        return
    end
    log.first = first
    log.head = math.max(log.head, first)
    local hold = hold_before(log, first)
    while hold do
        local due = drop_hold(log, hold)
        if hold.last >= first then
            add_hold(log, with_range(hold, first, hold.last), due)
        end
        hold = hold_before(log, first)
    end
    -- What follows may have been done before, and have been kept only for what has now been cut off.
    local open = hold_from(log, first)
    delete_before(log, open and open.first or log.head)
end

-- Returns the first id that remains when batches that are too old or too much go, oldest first; and floor and since.
local function skip_batches(log, first, max_bytes, oldest_ms)
    local reader = reader_of(log)
    while true do
        local batch = batch_at(reader, first, 1, 1)
        if not batch then
            return first, log.bytes, log.now
        end
        local begins = batch.ends - batch.size
        local too_old = oldest_ms and batch.time < oldest_ms
        local too_much = max_bytes and batch.last < log.last and log.bytes - begins > max_bytes
        if not too_old and not too_much then
            return first, begins, batch.time
        end
        first = batch.last + 1
    end
end

-- The limits stand in ARGV from `index` on: max_count, max_bytes, max_age_ms, each empty where it does not apply.
-- Returns the first id that remains, and the floor and since that are then known.
local function first_to_keep(log, index)
    local max_count, max_bytes = tonumber(ARGV[index]), tonumber(ARGV[index + 1])
    local max_age_ms = tonumber(ARGV[index + 2])
    local oldest_ms = max_age_ms and log.now - max_age_ms
    local first = log.first
    if max_count then
        first = math.max(first, log.last - max_count + 1)
    end
    if (max_bytes and log.bytes - log.floor > max_bytes) or (oldest_ms and log.since < oldest_ms) then
        return skip_batches(log, first, max_bytes, oldest_ms)
    end
    return first, log.floor, log.since
end

local function trim(log, index)
    local first
    first, log.floor, log.since = first_to_keep(log, index)
    forget_before(log, first)
end
