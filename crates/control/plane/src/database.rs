//! The rules database: entries with their history, drafts, tokens, audit, the publisher's lease, reports of nodes.
//!
//! One set of statements runs on SQLite and PostgreSQL. Nothing is updated in place: an entry has the version in which it
//! began and the one in which it ended, so that any version can be read again, and a reader of a version sees one state
//! while others write. Writers take one lock, and writes that wait together share one transaction.

mod audit;
mod beats;
mod drafts;
mod entries;
mod lane;
mod open;
mod session;
mod tokens;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::change::{ApplyOutcome, Author, Change, ChangeSet, Difference, VersionView};
use crate::content::RuleTexts;
use crate::entry::{Entry, EntryKey, EntryKind};
use crate::error::PlaneError;
use audit::AuditFields;
use lane::Lane;
use open::Connector;
use session::{Session, values};

pub(crate) use audit::hexadecimal;
pub use audit::{AuditCheck, AuditRow};
pub use beats::{NODES_MAX, NodeReport, NodeView, PublishPermit};
pub use drafts::{Draft, DraftState, ReviewNote};
pub use entries::{DIFFERENCES_MAX, PAGE_MAX, PageQuery, TERMS_MAX, Totals};
pub use tokens::{StoredToken, TokenView};

/// An event for the audit that changes no entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// The name of the token.
    pub actor: String,
    /// What was done.
    pub action: &'static str,
    /// Of what.
    pub object: String,
    /// `applied`, or why it was refused.
    pub outcome: String,
    /// Why.
    pub why: String,
}

/// The rules database.
pub struct RulesDatabase {
    /// The only connection that writes.
    writer: Lane,
    /// Reads of the publisher must not delay writes.
    reader: Lane,
    connector: Arc<Connector>,
}

impl fmt::Debug for RulesDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesDatabase").field("connector", &self.connector).finish_non_exhaustive()
    }
}

impl RulesDatabase {
    /// Opens the embedded database in a data directory; creates or migrates it.
    ///
    /// # Errors
    /// When another process has the directory open, or it cannot be used.
    pub async fn open(directory: &Path) -> Result<Self, PlaneError> {
        RulesDatabase::start(Connector::sqlite(directory)?).await
    }

    /// Connects to a PostgreSQL server, and creates or migrates the tables in the schema.
    ///
    /// # Errors
    /// When the server cannot be reached, or has tables of a newer version.
    #[cfg(feature = "postgres")]
    pub async fn connect(url: &str, schema: &str) -> Result<Self, PlaneError> {
        let connector = open::PostgresConnector::new(url, schema)?;
        RulesDatabase::start(Connector::Postgres(Box::new(connector))).await
    }

    async fn start(connector: Connector) -> Result<Self, PlaneError> {
        let connector = Arc::new(connector);
        let writer = Lane::start("rules-writer", true, Arc::clone(&connector))?;
        let reader = Lane::start("rules-reader", false, Arc::clone(&connector))?;
        let database = RulesDatabase { writer, reader, connector };
        // So that a database that cannot be used is an error at once; the writer migrates it before the reader looks.
        database.writer.call(async |session: &mut Session| entries::newest(session).await).await?;
        database.version().await?;
        Ok(database)
    }

    /// Where it is, without secrets.
    pub fn location(&self) -> String {
        self.connector.location()
    }

    /// Its data directory, if it is embedded.
    pub fn directory(&self) -> Option<&Path> {
        self.connector.directory()
    }

    /// The newest version; 0 before the first change.
    pub async fn version(&self) -> Result<u64, PlaneError> {
        self.reader.call(async |session: &mut Session| entries::newest(session).await).await
    }

    /// An entry as it is at a version.
    pub async fn entry(&self, key: EntryKey, version: u64) -> Result<Option<Entry>, PlaneError> {
        let find = async move |session: &mut Session| entries::find(session, &key, version).await;
        self.reader.call(find).await
    }

    /// A page of entries, ordered by collection and name.
    pub async fn page(&self, query: PageQuery) -> Result<Vec<Entry>, PlaneError> {
        self.reader
            .call(async move |session: &mut Session| entries::page(session, &query).await)
            .await
    }

    /// The documents and plans of a version.
    pub async fn rule_texts(&self, version: u64) -> Result<RuleTexts, PlaneError> {
        let read = async move |session: &mut Session| entries::rule_texts(session, version).await;
        self.reader.call(read).await
    }

    /// How many entries of a kind there are now.
    pub async fn totals(&self, kind: EntryKind) -> Result<Totals, PlaneError> {
        self.reader
            .call(async move |session: &mut Session| entries::totals(session, kind).await)
            .await
    }

    /// Applies a set of changes: all of them as one version, or none. At most `rows_max` rows can exist.
    ///
    /// # Errors
    /// When a change is wrong, stale or not allowed. Nothing is applied then.
    pub async fn apply(
        &self,
        set: ChangeSet,
        rows_max: u64,
        now_millis: u64,
    ) -> Result<ApplyOutcome, PlaneError> {
        let apply = async move |session: &mut Session| {
            entries::apply(session, &set, rows_max, now_millis).await
        };
        self.writer.call(apply).await
    }

    /// Applies the changes of a draft, and marks it as published, in one transaction.
    ///
    /// # Errors
    /// Like [`RulesDatabase::apply`].
    pub async fn publish_draft(
        &self,
        name: String,
        set: ChangeSet,
        rows_max: u64,
        now_millis: u64,
    ) -> Result<ApplyOutcome, PlaneError> {
        let publish = async move |session: &mut Session| {
            let applied = entries::apply(session, &set, rows_max, now_millis).await?;
            drafts::set_published(session, &name).await?;
            Ok(applied)
        };
        self.writer.call(publish).await
    }

    /// Checks a set of changes as [`RulesDatabase::apply`] would, and changes nothing.
    pub async fn check(
        &self,
        set: ChangeSet,
        rows_max: u64,
        now_millis: u64,
    ) -> Result<ApplyOutcome, PlaneError> {
        let found = Arc::new(parking_lot::Mutex::new(None));
        let kept = Arc::clone(&found);
        let check = async move |session: &mut Session| {
            let outcome = entries::apply(session, &set, rows_max, now_millis).await;
            if matches!(&outcome, Err(error) if !error.is_answer()) {
                return outcome;
            }
            *kept.lock() = Some(outcome);
            // The savepoint takes everything back.
            Err(PlaneError::Conflict(String::new()))
        };
        let ended = self.writer.call(check).await;
        found.lock().take().unwrap_or(ended)
    }

    /// Brings back the content of a version, as a new version. Switches and API keys stay as they are.
    ///
    /// # Errors
    /// When there is no such version, or its content does not fit any more.
    pub async fn restore(
        &self,
        version: u64,
        author: Author,
        why: String,
        rows_max: u64,
        now_millis: u64,
    ) -> Result<ApplyOutcome, PlaneError> {
        let restore = async move |session: &mut Session| {
            let changes: Vec<Change> = entries::restoring_changes(session, version).await?;
            let mut set = ChangeSet::new(author.clone(), why.clone(), changes);
            set.restored = Some(version);
            entries::apply(session, &set, rows_max, now_millis).await
        };
        self.writer.call(restore).await
    }

    /// Versions before this one, newest first.
    pub async fn versions(&self, before: u64, limit: u64) -> Result<Vec<VersionView>, PlaneError> {
        let read =
            async move |session: &mut Session| entries::versions(session, before, limit).await;
        self.reader.call(read).await
    }

    /// What differs between two versions.
    ///
    /// # Errors
    /// When there is no such version, or more than [`DIFFERENCES_MAX`] entries differ.
    pub async fn differences(&self, from: u64, to: u64) -> Result<Vec<Difference>, PlaneError> {
        let read = async move |session: &mut Session| entries::differences(session, from, to).await;
        self.reader.call(read).await
    }

    /// Rows of the audit after a number.
    pub async fn audit(&self, after: u64, limit: u64) -> Result<Vec<AuditRow>, PlaneError> {
        self.reader
            .call(async move |session: &mut Session| audit::list(session, after, limit).await)
            .await
    }

    /// Checks the chain of the audit, and the entries of each version.
    pub async fn verify_audit(&self) -> Result<AuditCheck, PlaneError> {
        self.reader.call(async |session: &mut Session| audit::verify(session).await).await
    }

    /// The hash of the newest row of the audit.
    pub async fn audit_head(&self) -> Result<Vec<u8>, PlaneError> {
        self.reader.call(async |session: &mut Session| audit::head(session).await).await
    }

    /// Adds an event to the audit.
    pub async fn record(&self, event: AuditEvent, now_millis: u64) -> Result<(), PlaneError> {
        let append = async move |session: &mut Session| record(session, &event, now_millis).await;
        self.writer.call(append).await
    }

    /// A setting of the cell; empty if it was never set.
    pub async fn setting(&self, name: &'static str) -> Result<String, PlaneError> {
        let read = async move |session: &mut Session| {
            let sql = "SELECT value FROM settings WHERE name = $1";
            let rows = session.query(sql, values![name]).await?;
            rows.first().map_or(Ok(String::new()), |row| row.text(0))
        };
        self.reader.call(read).await
    }

    /// Sets a setting of the cell.
    pub async fn set_setting(&self, name: &'static str, value: String) -> Result<(), PlaneError> {
        let write = async move |session: &mut Session| {
            let sql =
                "INSERT INTO settings VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $3";
            session.execute(sql, values![name, &value, &value]).await?;
            Ok(())
        };
        self.writer.call(write).await
    }

    /// All tokens, by name.
    pub async fn tokens(&self) -> Result<Vec<StoredToken>, PlaneError> {
        self.reader.call(async |session: &mut Session| tokens::list(session).await).await
    }

    /// Adds a token, with its row in the audit.
    ///
    /// # Errors
    /// When there is one of that name, or there are too many.
    pub async fn add_token(&self, token: StoredToken, event: AuditEvent) -> Result<(), PlaneError> {
        let add = async move |session: &mut Session| {
            tokens::add(session, &token).await?;
            record(session, &event, token.made_at).await
        };
        self.writer.call(add).await
    }

    /// Removes a token, with its row in the audit.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn remove_token(
        &self,
        name: String,
        event: AuditEvent,
        now_millis: u64,
    ) -> Result<(), PlaneError> {
        let remove = async move |session: &mut Session| {
            tokens::remove(session, &name).await?;
            record(session, &event, now_millis).await
        };
        self.writer.call(remove).await
    }

    /// A draft.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn draft(&self, name: String) -> Result<Draft, PlaneError> {
        self.reader
            .call(async move |session: &mut Session| drafts::find(session, &name).await)
            .await
    }

    /// All drafts, newest first.
    pub async fn drafts(&self) -> Result<Vec<Draft>, PlaneError> {
        self.reader.call(async |session: &mut Session| drafts::list(session).await).await
    }

    /// Stores a draft; an open one of the same name and author is replaced.
    ///
    /// # Errors
    /// When the name belongs to another draft.
    pub async fn put_draft(&self, draft: Draft, now_millis: u64) -> Result<(), PlaneError> {
        let put = async move |session: &mut Session| drafts::put(session, &draft, now_millis).await;
        self.writer.call(put).await
    }

    /// Adds a review note to a draft.
    ///
    /// # Errors
    /// When the draft is published, or its author approves it.
    pub async fn review_draft(
        &self,
        name: String,
        note: ReviewNote,
        approvals_needed: u64,
    ) -> Result<Draft, PlaneError> {
        let review = async move |session: &mut Session| {
            drafts::note(session, &name, &note, approvals_needed).await
        };
        self.writer.call(review).await
    }

    /// Deletes a draft.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn remove_draft(&self, name: String) -> Result<(), PlaneError> {
        self.writer
            .call(async move |session: &mut Session| drafts::remove(session, &name).await)
            .await
    }

    /// Takes or renews the publisher's lease, and takes the next sequence. `None` while another process has the lease.
    pub async fn take_sequence(
        &self,
        owner: String,
        now_millis: u64,
        lease_millis: u64,
    ) -> Result<Option<PublishPermit>, PlaneError> {
        let take = async move |session: &mut Session| {
            beats::take_sequence(session, &owner, now_millis, lease_millis).await
        };
        self.writer.call(take).await
    }

    /// Gives the publisher's lease back.
    pub async fn release_lease(&self, owner: String) -> Result<(), PlaneError> {
        self.writer
            .call(async move |session: &mut Session| beats::release(session, &owner).await)
            .await
    }

    /// Goes on after a sequence of this epoch that was published already.
    pub async fn raise_sequence(&self, epoch: u64, sequence: u64) -> Result<(), PlaneError> {
        let raise = async move |session: &mut Session| {
            beats::raise_sequence(session, epoch, sequence).await
        };
        self.writer.call(raise).await
    }

    /// Starts a new epoch, at least this one, with its row in the audit. Returns its number.
    pub async fn start_epoch(
        &self,
        at_least: u64,
        event: AuditEvent,
        now_millis: u64,
    ) -> Result<u64, PlaneError> {
        let start = async move |session: &mut Session| {
            let epoch = beats::start_epoch(session, at_least).await?;
            record(session, &event, now_millis).await?;
            Ok(epoch)
        };
        self.writer.call(start).await
    }

    /// The publisher's notes: what it published last, and which guards are overruled.
    pub async fn publisher_memory(&self) -> Result<(String, String), PlaneError> {
        self.reader.call(async |session: &mut Session| beats::memory(session).await).await
    }

    /// Notes what was published last.
    pub async fn set_published(&self, text: String) -> Result<(), PlaneError> {
        self.writer
            .call(async move |session: &mut Session| beats::set_published(session, &text).await)
            .await
    }

    /// Notes which guards are overruled, with a row in the audit.
    pub async fn set_allowed(
        &self,
        text: String,
        event: AuditEvent,
        now_millis: u64,
    ) -> Result<(), PlaneError> {
        let set = async move |session: &mut Session| {
            beats::set_allowed(session, &text).await?;
            record(session, &event, now_millis).await
        };
        self.writer.call(set).await
    }

    /// Stores reports of nodes: id, when, report.
    pub async fn store_reports(
        &self,
        reports: Vec<(String, u64, NodeReport)>,
    ) -> Result<(), PlaneError> {
        let store =
            async move |session: &mut Session| beats::store_reports(session, &reports).await;
        self.writer.call(store).await
    }

    /// All nodes that reported within a week.
    pub async fn nodes(&self, now_millis: u64) -> Result<Vec<NodeView>, PlaneError> {
        self.reader
            .call(async move |session: &mut Session| beats::nodes(session, now_millis).await)
            .await
    }
}

async fn record(
    session: &mut Session,
    event: &AuditEvent,
    now_millis: u64,
) -> Result<(), PlaneError> {
    let fields = AuditFields {
        actor: &event.actor,
        action: event.action,
        object: &event.object,
        outcome: &event.outcome,
        version: None,
        why: &event.why,
        digest: &[],
    };
    audit::append(session, &fields, now_millis).await
}
