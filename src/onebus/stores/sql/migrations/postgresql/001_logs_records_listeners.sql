-- A log and the counters of its ids; epoch tells one life of a log from the next under the same name.
CREATE TABLE onebus_log (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    epoch TEXT NOT NULL,
    first_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    head BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    bytes_appended BIGINT NOT NULL,
    ttl_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL
) WITH (fillfactor = 50);

-- A record batch; end_byte counts all bytes ever appended to the log, up to the end of this batch.
CREATE TABLE onebus_batch (
    log_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    count BIGINT NOT NULL,
    size BIGINT NOT NULL,
    end_byte BIGINT NOT NULL,
    appended_ms BIGINT NOT NULL,
    twin_log TEXT,
    twin_first_id BIGINT,
    blob BYTEA NOT NULL,
    PRIMARY KEY (log_id, last_id)
);

-- Batches are compressed by their writers or not at all: trying again here only costs time.
ALTER TABLE onebus_batch ALTER COLUMN blob SET STORAGE EXTERNAL;

-- A range of ids below head that is not done: leased or delayed until due_ms, or free when due_ms is 0.
CREATE TABLE onebus_hold (
    log_id BIGINT NOT NULL,
    first_id BIGINT NOT NULL,
    last_id BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    due_ms BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    redeliver BOOLEAN NOT NULL,
    owner TEXT NOT NULL,
    PRIMARY KEY (log_id, first_id)
);

CREATE INDEX onebus_hold_due ON onebus_hold (log_id, due_ms, first_id);

-- A small map with a version; fields is a msgpack map.
CREATE TABLE onebus_record (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    fields BYTEA NOT NULL,
    ttl_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL
);

-- Which open stores listen to which signal; refreshed while they do.
CREATE TABLE onebus_listener (
    name TEXT COLLATE "C" NOT NULL,
    client TEXT NOT NULL,
    expires_ms BIGINT NOT NULL,
    PRIMARY KEY (name, client)
);
