-- A log and the counters of its ids; epoch tells one life of a log from the next under the same name.
CREATE TABLE onebus_log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    epoch TEXT NOT NULL,
    first_id INTEGER NOT NULL,
    last_id INTEGER NOT NULL,
    head INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    bytes_appended INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
);

CREATE INDEX onebus_log_expires ON onebus_log (expires_ms) WHERE expires_ms > 0;

-- A record batch; end_byte counts all bytes ever appended to the log, up to the end of this batch.
-- It has a rowid, because SQLite reads whole rows, blobs included, to find its way in a table without one.
CREATE TABLE onebus_batch (
    log_id INTEGER NOT NULL,
    last_id INTEGER NOT NULL,
    count INTEGER NOT NULL,
    size INTEGER NOT NULL,
    end_byte INTEGER NOT NULL,
    appended_ms INTEGER NOT NULL,
    twin_log TEXT,
    twin_first_id INTEGER,
    blob BLOB NOT NULL,
    PRIMARY KEY (log_id, last_id)
);

-- An append is one INSERT; the counters of its log follow by themselves.
CREATE TRIGGER onebus_batch_appended AFTER INSERT ON onebus_batch BEGIN
    UPDATE onebus_log SET
        last_id = NEW.last_id,
        bytes_appended = NEW.end_byte,
        expires_ms = CASE WHEN ttl_ms > 0 THEN NEW.appended_ms + ttl_ms ELSE 0 END
    WHERE id = NEW.log_id; END;

-- A range of ids below head that is not done: leased or delayed until due_ms, or free when due_ms is 0.
CREATE TABLE onebus_hold (
    log_id INTEGER NOT NULL,
    first_id INTEGER NOT NULL,
    last_id INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    redeliver BOOLEAN NOT NULL,
    owner TEXT NOT NULL,
    PRIMARY KEY (log_id, first_id)
) WITHOUT ROWID;

CREATE INDEX onebus_hold_due ON onebus_hold (log_id, due_ms, first_id);

-- A small map with a version; fields is a msgpack map.
CREATE TABLE onebus_record (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    fields BLOB NOT NULL,
    ttl_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
);

CREATE INDEX onebus_record_expires ON onebus_record (expires_ms) WHERE expires_ms > 0;

-- Which open stores listen to which signal; refreshed while they do.
CREATE TABLE onebus_listener (
    name TEXT NOT NULL,
    client TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    PRIMARY KEY (name, client)
) WITHOUT ROWID;
