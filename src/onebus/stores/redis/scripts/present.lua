#!lua flags=allow-oom
-- Returns how many of the logs and records in KEYS, given by their hashes, are there. ARGV: now
local now = clock(ARGV[1])
local present = 0
for _, key in ipairs(KEYS) do
    local expires = tonumber(redis.call('HGET', key, 'expires'))
    if expires and (expires == 0 or expires > now) then
        present = present + 1
    end
end
return present
