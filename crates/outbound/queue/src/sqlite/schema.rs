//! The tables.
//!
//! A record has a small row that changes with each claim, and a payload row that does not, so that a claim does not
//! rewrite the payload. `sequence` is the record's number in this file and part of its id. `position` is its place in
//! the order of its key: equal to the sequence, except after a redrive.

use tidegate_data_dir::Schema;

/// States of a record. The indexes name these numbers.
pub(super) mod record_state {
    /// May be claimed.
    pub(crate) const READY: i64 = 0;
    /// Waits for `due_at`.
    pub(crate) const DELAYED: i64 = 1;
    /// In flight until `due_at`.
    pub(crate) const CLAIMED: i64 = 2;
    /// Behind another record of its key; `due_at` is its own `not_before`.
    pub(crate) const BLOCKED: i64 = 3;
}

pub(super) const SCHEMA: Schema =
    Schema { name: "queue", application_id: 0x7467_7175, migrations: &[VERSION_1, VERSION_2] };

const VERSION_1: &str = "
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE queues (
    id INTEGER PRIMARY KEY,
    record_type TEXT NOT NULL UNIQUE
) STRICT;

-- One row for each class; the row of class -1 has the dead letters.
CREATE TABLE totals (
    queue INTEGER NOT NULL,
    class INTEGER NOT NULL,
    records INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    in_flight INTEGER NOT NULL,
    PRIMARY KEY (queue, class)
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
    sequence INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    state INTEGER NOT NULL,
    class INTEGER NOT NULL,
    tag INTEGER NOT NULL,
    position INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    serial_key TEXT,
    cost INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    waiting_since INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    lapses INTEGER NOT NULL
) STRICT;
CREATE INDEX records_ready ON records (queue, class, tag, sequence) WHERE state = 0;
CREATE INDEX records_due ON records (queue, due_at) WHERE state IN (1, 2);
CREATE INDEX records_of_key ON records (queue, serial_key, position) WHERE serial_key IS NOT NULL;
CREATE INDEX records_of_queue ON records (queue, sequence);

CREATE TABLE payloads (sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL) STRICT;

CREATE TABLE dead_letters (
    sequence INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    class INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    serial_key TEXT,
    cost INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    lapses INTEGER NOT NULL,
    died_at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX dead_letters_of_queue ON dead_letters (queue, sequence);

CREATE TABLE dedup_keys (
    queue INTEGER NOT NULL,
    dedup_key TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (queue, dedup_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX dedup_keys_by_expiry ON dedup_keys (expires_at);
";

/// Jobs. Triggers count their records, so that no operation can forget to. The first epoch of a record is 0; a redriven
/// one has a later epoch and was accepted before.
const VERSION_2: &str = "
ALTER TABLE records ADD COLUMN job TEXT;
ALTER TABLE dead_letters ADD COLUMN job TEXT;

CREATE TABLE jobs (
    queue INTEGER NOT NULL,
    job TEXT NOT NULL,
    tenant TEXT NOT NULL,
    first_enqueued INTEGER NOT NULL,
    last_enqueued INTEGER NOT NULL,
    accepted INTEGER NOT NULL,
    accepted_cost INTEGER NOT NULL,
    live INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL,
    live_cost INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    purged INTEGER NOT NULL,
    PRIMARY KEY (queue, job, tenant)
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_by_age ON jobs (queue, first_enqueued);

CREATE TRIGGER job_record_added AFTER INSERT ON records WHEN NEW.job IS NOT NULL BEGIN
    INSERT INTO jobs VALUES (NEW.queue, NEW.job, NEW.tenant, NEW.enqueued_at, NEW.enqueued_at,
        NEW.epoch = 0, iif(NEW.epoch = 0, NEW.cost, 0), 1, NEW.bytes, NEW.cost, 0, 0)
    ON CONFLICT DO UPDATE SET last_enqueued = max(last_enqueued, NEW.enqueued_at),
        accepted = accepted + (NEW.epoch = 0), accepted_cost = accepted_cost + iif(NEW.epoch = 0, NEW.cost, 0),
        live = live + 1, live_bytes = live_bytes + NEW.bytes, live_cost = live_cost + NEW.cost;
END;
CREATE TRIGGER job_record_removed AFTER DELETE ON records WHEN OLD.job IS NOT NULL BEGIN
    UPDATE jobs SET live = live - 1, live_bytes = live_bytes - OLD.bytes, live_cost = live_cost - OLD.cost
    WHERE queue = OLD.queue AND job = OLD.job AND tenant = OLD.tenant;
END;
CREATE TRIGGER job_dead_letter_added AFTER INSERT ON dead_letters WHEN NEW.job IS NOT NULL BEGIN
    UPDATE jobs SET dead = dead + 1 WHERE queue = NEW.queue AND job = NEW.job AND tenant = NEW.tenant;
END;
CREATE TRIGGER job_dead_letter_removed AFTER DELETE ON dead_letters WHEN OLD.job IS NOT NULL BEGIN
    UPDATE jobs SET dead = dead - 1 WHERE queue = OLD.queue AND job = OLD.job AND tenant = OLD.tenant;
END;
";
