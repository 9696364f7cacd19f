#!lua flags=allow-oom
-- Returns the hash of a record, or nil if there is none. ARGV: now
local expires = tonumber(redis.call('HGET', KEYS[1], 'expires'))
if not expires then
    return nil
end
if expires > 0 and expires <= clock(ARGV[1]) then
    redis.call('UNLINK', KEYS[1])
    return nil
end
return redis.call('HGETALL', KEYS[1])
