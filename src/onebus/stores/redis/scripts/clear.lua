#!lua flags=allow-oom
-- Forgets the messages and claims of a log. ARGV: now
local log = find_log(clock(ARGV[1]))
if log then
    log.first, log.head = log.last + 1, log.last + 1
    log.open, log.free = 0, 0
    log.floor, log.since = log.bytes, log.now
    redis.call('UNLINK', log.keys.holds, log.keys.due, log.keys.free)
    -- An empty stream keeps its expiry.
    redis.call('XTRIM', log.keys.batches, 'MAXLEN', 0)
    unlink_apart(log.keys, '-inf', '+inf')
    save(log)
end
return nil
