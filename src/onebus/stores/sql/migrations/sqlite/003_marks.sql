-- The newest append of each source that counts its appends to a log, and the id of the first message of that one.
CREATE TABLE onebus_mark (
    log_id INTEGER NOT NULL,
    source TEXT NOT NULL,
    number INTEGER NOT NULL,
    first_id INTEGER NOT NULL,
    PRIMARY KEY (log_id, source)
) WITHOUT ROWID;
