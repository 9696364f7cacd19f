-- The newest append of each source that counts its appends to a log, and the id of the first message of that one.
CREATE TABLE onebus_mark (
    log_id BIGINT NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    first_id BIGINT NOT NULL,
    PRIMARY KEY (log_id, source)
);
