-- Where open stores hear the bell: the address of a UDP socket, and the secret under which it accepts news.
-- Those who are registered come back by themselves, so the table may begin anew; that can be repeated, too.
DROP TABLE IF EXISTS onebus_bell;

CREATE TABLE IF NOT EXISTS onebus_bell (
    address VARCHAR(80) NOT NULL PRIMARY KEY,
    secret VARBINARY(32) NOT NULL,
    expires_ms BIGINT NOT NULL
) ENGINE = InnoDB;
