//! The tables, and how they are created and migrated.
//!
//! They are those of the embedded store, except that totals are differences to sum, and that the last tags are rows,
//! because no process sees all claims.

use super::pool::{Failure, Pool};
use crate::error::QueueError;

/// SQL to reach each version from the one before. Published entries never change.
const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE counters (name text PRIMARY KEY, value bigint NOT NULL);
INSERT INTO counters VALUES ('instance', floor(random() * 4294967296)::bigint);

CREATE SEQUENCE record_sequence AS bigint;

CREATE TABLE queues (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    record_type text NOT NULL UNIQUE
);

-- Differences; their sums are the totals. Class -1 counts dead letters.
CREATE TABLE totals (
    queue bigint NOT NULL,
    class bigint NOT NULL,
    records bigint NOT NULL,
    bytes bigint NOT NULL,
    cost bigint NOT NULL,
    in_flight bigint NOT NULL
);
CREATE INDEX totals_of_queue ON totals (queue);

-- Where the next record of a tenant starts, and how far each class was claimed.
CREATE TABLE tenants (
    queue bigint NOT NULL,
    class bigint NOT NULL,
    tenant text NOT NULL,
    end_tag bigint NOT NULL,
    PRIMARY KEY (queue, class, tenant)
);
CREATE TABLE virtual_times (
    queue bigint NOT NULL,
    class bigint NOT NULL,
    tag bigint NOT NULL,
    PRIMARY KEY (queue, class)
);

CREATE TABLE records (
    sequence bigint PRIMARY KEY,
    queue bigint NOT NULL,
    state bigint NOT NULL,
    class bigint NOT NULL,
    tag bigint NOT NULL,
    position bigint NOT NULL,
    tenant text NOT NULL,
    serial_key text,
    cost bigint NOT NULL,
    bytes bigint NOT NULL,
    enqueued_at bigint NOT NULL,
    waiting_since bigint NOT NULL,
    due_at bigint NOT NULL,
    deadline bigint NOT NULL,
    epoch bigint NOT NULL,
    attempts bigint NOT NULL,
    lapses bigint NOT NULL
);
CREATE INDEX records_ready ON records (queue, class, tag, sequence) WHERE state = 0;
CREATE INDEX records_due ON records (queue, due_at) WHERE state IN (1, 2);
CREATE INDEX records_of_key ON records (queue, serial_key, position) WHERE serial_key IS NOT NULL;
CREATE INDEX records_of_queue ON records (queue, sequence);

CREATE TABLE payloads (sequence bigint PRIMARY KEY, payload bytea NOT NULL);

CREATE TABLE dead_letters (
    sequence bigint PRIMARY KEY,
    queue bigint NOT NULL,
    class bigint NOT NULL,
    tenant text NOT NULL,
    serial_key text,
    cost bigint NOT NULL,
    bytes bigint NOT NULL,
    enqueued_at bigint NOT NULL,
    deadline bigint NOT NULL,
    epoch bigint NOT NULL,
    attempts bigint NOT NULL,
    lapses bigint NOT NULL,
    died_at bigint NOT NULL,
    reason text NOT NULL,
    detail text NOT NULL
);
CREATE INDEX dead_letters_of_queue ON dead_letters (queue, sequence);

CREATE TABLE dedup_keys (
    queue bigint NOT NULL,
    dedup_key text NOT NULL,
    sequence bigint NOT NULL,
    enqueued_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (queue, dedup_key)
);
CREATE INDEX dedup_keys_by_expiry ON dedup_keys (expires_at);
",
    JOBS,
];

/// Jobs. Triggers append differences, one row for each job that a statement changes; their sums are the counts. The first
/// epoch of a record is 0; a redriven one has a later epoch and was accepted before.
const JOBS: &str = "
ALTER TABLE records ADD COLUMN job text;
ALTER TABLE dead_letters ADD COLUMN job text;

CREATE TABLE jobs (
    queue bigint NOT NULL,
    job text NOT NULL,
    tenant text NOT NULL,
    first_enqueued bigint NOT NULL,
    last_enqueued bigint NOT NULL,
    accepted bigint NOT NULL,
    accepted_cost bigint NOT NULL,
    live bigint NOT NULL,
    live_bytes bigint NOT NULL,
    live_cost bigint NOT NULL,
    dead bigint NOT NULL,
    purged bigint NOT NULL
);
CREATE INDEX jobs_of_queue ON jobs (queue, job, tenant);

CREATE FUNCTION count_job_records_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO jobs SELECT queue, job, tenant, min(enqueued_at), max(enqueued_at),
        count(*) FILTER (WHERE epoch = 0), coalesce(sum(cost) FILTER (WHERE epoch = 0), 0),
        count(*), sum(bytes), sum(cost), 0, 0
    FROM changed WHERE job IS NOT NULL GROUP BY queue, job, tenant;
    RETURN NULL;
END $$;
CREATE FUNCTION count_job_records_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO jobs SELECT queue, job, tenant, min(enqueued_at), max(enqueued_at),
        0, 0, -count(*), -sum(bytes), -sum(cost), 0, 0
    FROM changed WHERE job IS NOT NULL GROUP BY queue, job, tenant;
    RETURN NULL;
END $$;
CREATE FUNCTION count_job_dead_letters() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO jobs SELECT queue, job, tenant, min(enqueued_at), max(enqueued_at), 0, 0, 0, 0, 0,
        CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END, 0
    FROM changed WHERE job IS NOT NULL GROUP BY queue, job, tenant;
    RETURN NULL;
END $$;
CREATE TRIGGER job_record_added AFTER INSERT ON records REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION count_job_records_added();
CREATE TRIGGER job_record_removed AFTER DELETE ON records REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION count_job_records_removed();
CREATE TRIGGER job_dead_letter_added AFTER INSERT ON dead_letters REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION count_job_dead_letters();
CREATE TRIGGER job_dead_letter_removed AFTER DELETE ON dead_letters REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION count_job_dead_letters();
";

/// Processes that start together migrate one after the other.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(7311434771225342023)";

/// Creates or migrates the tables. Returns the random number of this database.
pub(super) async fn migrate(pool: &Pool, schema: &str) -> Result<u32, QueueError> {
    let migrated = async {
        let mut session = pool.session().await?;
        let connection = session.connection()?;
        let transaction = connection.client.transaction().await?;
        transaction.batch_execute(MIGRATION_LOCK).await?;
        transaction
            .batch_execute(&format!(
                "CREATE SCHEMA IF NOT EXISTS \"{schema}\"; \
                 CREATE TABLE IF NOT EXISTS versions (version bigint PRIMARY KEY)"
            ))
            .await?;
        let row =
            transaction.query_one("SELECT coalesce(max(version), 0) FROM versions", &[]).await?;
        let version: i64 = row.try_get(0)?;
        let known = MIGRATIONS.len() as i64;
        if version > known {
            let text = format!(
                "the schema {schema} has version {version}, and this version of Tidegate reads up to {known}; \
                 upgrade Tidegate or choose another schema"
            );
            return Err(Failure::Final(QueueError::Damaged(text)));
        }
        for (applied, sql) in (1_i64..).zip(MIGRATIONS).skip(usize::try_from(version).unwrap_or(0))
        {
            transaction.batch_execute(sql).await?;
            transaction.execute("INSERT INTO versions VALUES ($1)", &[&applied]).await?;
        }
        let row = transaction
            .query_opt("SELECT value FROM counters WHERE name = 'instance'", &[])
            .await?;
        let instance: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
        transaction.commit().await?;
        instance
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| super::pool::damaged("the instance number"))
    };
    Ok(migrated.await?)
}

/// The number of a record type.
pub(super) async fn open_queue(pool: &Pool, record_type: &str) -> Result<i64, Failure> {
    let mut session = pool.session().await?;
    let client = &session.connection()?.client;
    let insert = "INSERT INTO queues (record_type) VALUES ($1) ON CONFLICT DO NOTHING";
    client.execute(insert, &[&record_type]).await?;
    let select = "SELECT id FROM queues WHERE record_type = $1";
    Ok(client.query_one(select, &[&record_type]).await?.try_get(0)?)
}
