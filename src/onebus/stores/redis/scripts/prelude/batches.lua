-- Reading batches.

local function parse_batch(entry)
    local fields = entry[2]
    local last = tonumber(string.match(entry[1], '^%d+'))
    return {
        entry = entry,
        first = last - fields[2] + 1,
        last = last,
        ends = tonumber(fields[4]),
        time = tonumber(fields[6]),
        size = #fields[8],
    }
end

-- Reading an entry copies its batch, so pages begin small and do not exceed what there is room for.
local function page_size(reader, room, room_bytes)
    local batch = reader.batch
    if not batch then
        return 1
    end
    local ids = room / (batch.last - batch.first + 1)
    local bytes = room_bytes / math.max(batch.size, 1)
    reader.page_size = math.min(reader.page_size * 2, MAX_PAGE)
    return math.max(1, math.min(reader.page_size, math.ceil(ids), math.floor(bytes)))
end

local function reader_of(log)
    return { key = log.keys.batches, page = {}, index = 0, page_size = 1 }
end

-- Returns the batch that covers `id`, or the next one. The ids asked of one reader only grow.
local function batch_at(reader, id, room, room_bytes)
    while not reader.batch or reader.batch.last < id do
        reader.index = reader.index + 1
        if not reader.page[reader.index] then
            local count = page_size(reader, room, room_bytes)
            reader.page = redis.call('XRANGE', reader.key, id, '+', 'COUNT', count)
            reader.index = 1
        end
        local entry = reader.page[reader.index]
        if not entry then
            return nil
        end
        reader.batch = parse_batch(entry)
    end
    return reader.batch
end

