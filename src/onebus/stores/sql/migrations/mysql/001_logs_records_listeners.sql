-- A log and the counters of its ids; epoch tells one life of a log from the next under the same name.
-- Names are bytes, so that neither case nor trailing spaces are folded.
CREATE TABLE IF NOT EXISTS onebus_log (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name VARBINARY(300) NOT NULL UNIQUE,
    epoch VARCHAR(40) NOT NULL,
    first_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    head BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    bytes_appended BIGINT NOT NULL,
    ttl_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    INDEX onebus_log_expires (expires_ms)
) ENGINE = InnoDB;

-- A record batch; end_byte counts all bytes ever appended to the log, up to the end of this batch.
CREATE TABLE IF NOT EXISTS onebus_batch (
    log_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    count BIGINT NOT NULL,
    size BIGINT NOT NULL,
    end_byte BIGINT NOT NULL,
    appended_ms BIGINT NOT NULL,
    twin_log VARBINARY(300),
    twin_first_id BIGINT,
    `blob` LONGBLOB NOT NULL,
    PRIMARY KEY (log_id, last_id)
) ENGINE = InnoDB;

-- A range of ids below head that is not done: leased or delayed until due_ms, or free when due_ms is 0.
CREATE TABLE IF NOT EXISTS onebus_hold (
    log_id BIGINT NOT NULL,
    first_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    due_ms BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    redeliver BOOLEAN NOT NULL,
    owner VARBINARY(300) NOT NULL,
    PRIMARY KEY (log_id, first_id),
    INDEX onebus_hold_due (log_id, due_ms, first_id)
) ENGINE = InnoDB;

-- A small map with a version; fields is a msgpack map.
CREATE TABLE IF NOT EXISTS onebus_record (
    name VARBINARY(300) NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    fields LONGBLOB NOT NULL,
    ttl_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    INDEX onebus_record_expires (expires_ms)
) ENGINE = InnoDB;

-- Which open stores listen to which signal; refreshed while they do.
CREATE TABLE IF NOT EXISTS onebus_listener (
    name VARBINARY(300) NOT NULL,
    client VARCHAR(40) NOT NULL,
    expires_ms BIGINT NOT NULL,
    PRIMARY KEY (name, client)
) ENGINE = InnoDB;

-- Where open stores hear the bell: the address of a UDP socket; refreshed while it is open.
CREATE TABLE IF NOT EXISTS onebus_bell (
    address VARCHAR(80) NOT NULL PRIMARY KEY,
    expires_ms BIGINT NOT NULL
) ENGINE = InnoDB;
