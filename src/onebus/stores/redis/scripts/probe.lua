#!lua flags=allow-oom
-- Does nothing, but only where scripts may write: not on a replica, nor on a master that misses its replicas.
return 1
