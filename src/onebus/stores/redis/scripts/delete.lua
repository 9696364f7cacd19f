#!lua flags=allow-oom
--[[
ARGV  now, expected version (empty: any)
Returns 1 and the version of the record that is gone (0 if there was none), or 0 and the version that was
not expected.
]]
local values = redis.call('HMGET', KEYS[1], 'version', 'expires')
local version, expires = tonumber(values[1]) or 0, tonumber(values[2]) or 0
if expires > 0 and expires <= clock(ARGV[1]) then
    version = 0
end
local expected = tonumber(ARGV[2])
if expected and expected ~= version then
    return { 0, version }
end
redis.call('UNLINK', KEYS[1])
return { 1, version }
