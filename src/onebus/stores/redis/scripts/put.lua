#!lua
--[[
Sets fields of a record.

ARGV  now, expected version (empty: any), ttl in ms (empty: leave it, 0: for ever), version before the first one of
      a new record, how many fields are set, field, value, …, fields that go
Returns 1 and the new version, or 0 and the version that was not expected.
]]
local FIELDS = 6

local key, now = KEYS[1], clock(ARGV[1])
local expected, new_ttl = tonumber(ARGV[2]), tonumber(ARGV[3])
local values = redis.call('HMGET', key, 'version', 'ttl', 'expires')
local version, ttl, expires = tonumber(values[1]), tonumber(values[2]), tonumber(values[3])
local is_expired = version and expires > 0 and expires <= now
if is_expired then
    version = nil
end
if expected and expected ~= (version or 0) then
    return { 0, version or 0 }
end
if is_expired then
    redis.call('UNLINK', key)
end

ttl = new_ttl or (version and ttl) or 0
version = (version or tonumber(ARGV[4])) + 1
expires = ttl > 0 and now + ttl or 0
local set_until = FIELDS + 2 * tonumber(ARGV[5]) - 1
for index = FIELDS, set_until, 2 do
    redis.call('HSET', key, ARGV[index], ARGV[index + 1])
end
for index = set_until + 1, #ARGV do
    redis.call('HDEL', key, ARGV[index])
end
redis.call('HSET', key, 'version', version, 'ttl', ttl, 'expires', expires)
if ttl > 0 then
    redis.call('PEXPIREAT', key, expires + SLACK_MS)
elseif new_ttl then
    redis.call('PERSIST', key)
end
return { 1, version }
