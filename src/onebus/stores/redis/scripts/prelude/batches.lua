-- Reading batches.

local function parse_batch(entry)
    local fields = entry[2]
    local last = tonumber(string.match(entry[1], '^%d+'))
    local size, apart
    if fields[7] == 'x' then
        size, apart = string.match(fields[8], '^(%d+) (.*)$')
    end
    return {
        entry = entry,
        first = last - fields[2] + 1,
        last = last,
        ends = tonumber(fields[4]),
        time = tonumber(fields[6]),
        size = tonumber(size) or #fields[8],
        apart = apart,
    }
end

-- Returns a batch as an entry that holds its blob. Where that lies apart and is gone, it is empty: nobody can read it.
local function entry_of(batch)
    if batch.apart then
        local fields = batch.entry[2]
        fields[7], fields[8] = 'b', redis.call('GET', batch.apart) or ''
    end
    return batch.entry
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

