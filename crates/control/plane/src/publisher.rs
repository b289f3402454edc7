//! The publisher: on every beat, everything is read, built, signed, verified and written, whatever changed.
//!
//! One process publishes at a time: it holds the lease in the database, and takes the sequence in the statement that
//! proves the lease. A content that a guard refuses is not published; the last good content is, with a new sequence, so
//! that nodes see a living publisher. While the database is away the last content goes on too, and its age shows.

mod broadcast;
mod build;
mod guard;
mod target;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::rand;
use serde::{Deserialize, Serialize};
use tidegate_algorithms::Clock;
use tidegate_snapshot_file::{
    EncodedContent, EpochCertificate, Freshness, Position, SigningKey, Stamp, Trust, read,
};

use crate::cell::CellSettings;
use crate::database::{PublishPermit, RulesDatabase, hexadecimal};
use crate::entry::show_time;
use crate::error::PlaneError;
use build::build_content;
use guard::{AllowedGuards, Refusal};

pub use broadcast::{Broadcast, PUBLISHER_METRICS, PublisherStatus, TargetStatus};
pub use build::BuiltContent;
pub use guard::{ContentCounts, Guard, check_growth};
#[cfg(feature = "objects")]
pub use target::ObjectTarget;
pub use target::{DirectoryTarget, TargetError, TargetFuture, TargetStore};

/// The lease lasts this many beats.
const LEASE_BEATS: u64 = 3;

/// How a publisher works.
pub struct PublisherSettings {
    /// The name of this process in the lease.
    pub owner: String,
    /// The ring; there is one.
    pub ring: String,
    /// The key that signs.
    pub key: SigningKey,
    /// An epoch, and the permission to sign in it.
    pub certificate: Option<(u64, EpochCertificate)>,
    /// Where files are written.
    pub targets: Vec<Box<dyn TargetStore>>,
}

impl fmt::Debug for PublisherSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublisherSettings").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// How a beat ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeatOutcome {
    /// A file was written to every target that could be reached.
    Published {
        /// Its sequence.
        sequence: u64,
        /// Its version.
        version: u64,
    },
    /// Another process publishes.
    Waiting,
    /// Nothing could be published.
    Failed(String),
}

/// What was published last, as the database remembers it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PublishedContent {
    version: u64,
    counts: ContentCounts,
}

/// A content that passed the guards, ready to be signed.
struct GoodContent {
    encoded: EncodedContent,
    published: PublishedContent,
    content_at: u64,
    audit_head: [u8; 32],
}

/// The publisher of one cell.
pub struct Publisher {
    database: Arc<RulesDatabase>,
    cell: CellSettings,
    clock: Arc<dyn Clock>,
    settings: PublisherSettings,
    broadcast: Arc<Broadcast>,
    good: Option<GoodContent>,
    /// The last position that this process wrote.
    last: Option<Position>,
    permit: Option<PublishPermit>,
    /// Whether the targets were read after the lease was taken.
    has_looked: bool,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("cell", &self.cell).finish_non_exhaustive()
    }
}

impl Publisher {
    /// A publisher that has not published yet.
    pub const fn new(
        database: Arc<RulesDatabase>,
        cell: CellSettings,
        clock: Arc<dyn Clock>,
        settings: PublisherSettings,
        broadcast: Arc<Broadcast>,
    ) -> Self {
        let (good, last, permit, has_looked) = (None, None, None, false);
        Publisher { database, cell, clock, settings, broadcast, good, last, permit, has_looked }
    }

    /// One beat. Everything that goes wrong is in the outcome and the status; the next beat is the retry.
    pub async fn beat(&mut self) -> BeatOutcome {
        let now = self.now();
        let outcome = match self.try_beat(now).await {
            Ok(outcome) => outcome,
            Err(error) => BeatOutcome::Failed(error),
        };
        if let BeatOutcome::Failed(error) = &outcome {
            tracing::warn!(cell = self.cell.name, error, "nothing was published in this beat");
        }
        self.broadcast.ended(&outcome);
        outcome
    }

    /// Gives the lease back, so that another process need not wait for its end.
    pub async fn stop(&mut self) {
        let owner = self.settings.owner.clone();
        if let Err(error) = self.database.release_lease(owner).await {
            tracing::warn!(%error, "the publisher's lease could not be given back; it ends by itself");
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_millis()
    }

    async fn try_beat(&mut self, now: u64) -> Result<BeatOutcome, String> {
        let refused = match self.read_content(now).await {
            Ok(refused) => refused,
            // The last content goes on, and its age shows.
            Err(error) if self.good.is_some() => {
                tracing::warn!(%error, "the database could not be read; the last content is published again");
                None
            }
            Err(error) => return Err(error.to_string()),
        };
        self.broadcast.refused(refused.as_ref().map(ToString::to_string));
        if self.good.is_none() {
            let reason = refused.map_or_else(String::new, |refusal| refusal.to_string());
            return Err(format!("there is no content to publish: {reason}"));
        }
        let lease = self.cell.beat_millis.saturating_mul(LEASE_BEATS);
        let owner = self.settings.owner.clone();
        let permit = match self.database.take_sequence(owner, now, lease).await {
            Ok(Some(permit)) => permit,
            Ok(None) => {
                self.has_looked = false;
                return Ok(BeatOutcome::Waiting);
            }
            Err(error) => {
                self.permit_without_database().await.map_err(|why| format!("{error}; {why}"))?
            }
        };
        let permit = match self.has_looked {
            true => permit,
            false => self.look_at_targets(permit).await?,
        };
        self.permit = Some(permit);
        self.put(permit).await
    }

    /// Reads the database and builds the newest content; keeps it if the guards let it pass.
    async fn read_content(&mut self, now: u64) -> Result<Option<Refusal>, PlaneError> {
        let database = Arc::clone(&self.database);
        let version = database.version().await?;
        let (published, allowed) = database.publisher_memory().await?;
        let published: PublishedContent = serde_json::from_str(&published).unwrap_or_default();
        let allowed: AllowedGuards = serde_json::from_str(&allowed).unwrap_or_default();
        let refusal = match self.build(version, now).await {
            Ok((content, counts)) => {
                match guard::check(version, &counts, &published.counts, &allowed) {
                    None => {
                        self.keep(content, version, counts, now).await?;
                        return Ok(None);
                    }
                    Some(refusal) => refusal,
                }
            }
            Err(PlaneError::Invalid(problems)) => {
                let text = problems.first().map(|one| format!("{}: {}", one.place, one.message));
                Refusal { guard: Guard::Invalid, version, reason: text.unwrap_or_default() }
            }
            Err(PlaneError::Full(reason)) => Refusal { guard: Guard::TooLarge, version, reason },
            Err(error) => return Err(error),
        };
        tracing::error!(
            version,
            guard = refusal.guard.as_str(),
            reason = refusal.reason,
            "not published"
        );
        if self.good.is_none() && published.version > 0 && published.version <= version {
            // After a restart: what passed the guards then is still good.
            let (content, counts) = self.build(published.version, now).await?;
            self.good = Some(self.good(content, published.version, counts, now).await?);
        }
        Ok(Some(refusal))
    }

    async fn build(
        &self,
        version: u64,
        now: u64,
    ) -> Result<(EncodedContent, ContentCounts), PlaneError> {
        let hash_key = self.hash_key().await?;
        let built = build_content(&self.database, &self.cell, version, hash_key, now).await?;
        let encoded = EncodedContent::new(self.cell.class, &built.content)
            .map_err(|error| PlaneError::Full(error.to_string()))?;
        Ok((encoded, built.counts))
    }

    /// The number that seeds the hashes of rows: random, drawn once for a database.
    async fn hash_key(&self) -> Result<u64, PlaneError> {
        let found = self.database.setting("hash_key").await?;
        if let Ok(key) = found.parse() {
            return Ok(key);
        }
        let mut random = [0; 8];
        let unavailable = |_| PlaneError::Unavailable("the system has no random bytes".to_owned());
        rand::fill(&mut random).map_err(unavailable)?;
        let key = u64::from_le_bytes(random);
        self.database.set_setting("hash_key", key.to_string()).await?;
        Ok(key)
    }

    async fn good(
        &self,
        encoded: EncodedContent,
        version: u64,
        counts: ContentCounts,
        now: u64,
    ) -> Result<GoodContent, PlaneError> {
        let head = self.database.audit_head().await?;
        let audit_head = head.as_slice().try_into().unwrap_or([0; 32]);
        let published = PublishedContent { version, counts };
        Ok(GoodContent { encoded, published, content_at: now, audit_head })
    }

    async fn keep(
        &mut self,
        encoded: EncodedContent,
        version: u64,
        counts: ContentCounts,
        now: u64,
    ) -> Result<(), PlaneError> {
        self.good = Some(self.good(encoded, version, counts, now).await?);
        Ok(())
    }

    /// While the database is away: the next number, if nobody else has published since our last file.
    async fn permit_without_database(&self) -> Result<PublishPermit, String> {
        let (Some(permit), Some(last)) = (self.permit, self.last) else {
            return Err("this process has not published yet".to_owned());
        };
        for target in &self.settings.targets {
            let found = target.get(&self.cell.name, &self.settings.ring).await;
            let found = found.ok().flatten().and_then(|bytes| self.position_of(&bytes));
            if found
                .is_some_and(|found| (found.epoch, found.sequence) > (last.epoch, last.sequence))
            {
                return Err(format!("another process has published to {}", target.name()));
            }
        }
        Ok(PublishPermit { sequence: last.sequence.saturating_add(1), ..permit })
    }

    fn trust(&self) -> Trust {
        Trust {
            cell: self.cell.name.clone(),
            ring: Some(self.settings.ring.clone()),
            keys: vec![self.settings.key.public_key()],
            epoch_key: None,
        }
    }

    fn position_of(&self, mut bytes: &[u8]) -> Option<Position> {
        let snapshot = tidegate_snapshot_file::inspect(&mut bytes).ok()?;
        (snapshot.head.stamp.cell == self.cell.name).then(|| snapshot.position())
    }

    /// Looks at what stands at the targets before the first put, and goes on after it.
    async fn look_at_targets(&mut self, permit: PublishPermit) -> Result<PublishPermit, String> {
        let mut highest: Option<(u64, u64, u64)> = None;
        for target in &self.settings.targets {
            // A target that cannot be read can be written later: its condition holds then.
            let Ok(Some(bytes)) = target.get(&self.cell.name, &self.settings.ring).await else {
                continue;
            };
            let Ok(found) = tidegate_snapshot_file::inspect(&mut bytes.as_slice()) else {
                continue;
            };
            let stamp = found.head.stamp;
            if stamp.cell == self.cell.name {
                highest = highest.max(Some((stamp.epoch, stamp.sequence, stamp.version)));
            }
        }
        let Some((epoch, sequence, version)) = highest else {
            self.has_looked = true;
            return Ok(permit);
        };
        let own = self.good.as_ref().map_or(0, |good| good.published.version);
        if epoch > permit.epoch || (epoch == permit.epoch && version > own) {
            return Err(format!(
                "{}: epoch {epoch}, version {version} is published, and this database has epoch {}, version {own}; \
                 restore the database that belongs to it, or start a new epoch with `tidegate control epoch`",
                Guard::Behind.as_str(),
                permit.epoch
            ));
        }
        self.has_looked = true;
        if epoch < permit.epoch || sequence < permit.sequence {
            return Ok(permit);
        }
        let next = sequence.saturating_add(1);
        self.database.raise_sequence(epoch, next).await.map_err(|error| error.to_string())?;
        Ok(PublishPermit { sequence: next, ..permit })
    }

    /// Signs, verifies as a node does, and writes to every target.
    async fn put(&mut self, permit: PublishPermit) -> Result<BeatOutcome, String> {
        let Some(good) = &self.good else { return Err("there is no content".to_owned()) };
        let certificate = self.settings.certificate.filter(|(epoch, _)| *epoch == permit.epoch);
        let certificate = certificate.map(|(_, certificate)| certificate);
        let stamp = Stamp {
            cell: self.cell.name.clone(),
            ring: self.settings.ring.clone(),
            epoch: permit.epoch,
            sequence: permit.sequence,
            version: good.published.version,
            fence: permit.fence,
            published_at: self.clock.now().as_millis(),
            content_at: good.content_at,
            beat_ms: u32::try_from(self.cell.beat_millis).unwrap_or(u32::MAX),
            audit_head: good.audit_head,
            certificate,
        };
        let signed =
            good.encoded.sign(&stamp, &self.settings.key).map_err(|error| error.to_string())?;
        let last = self.last.filter(|last| last.epoch == permit.epoch);
        let verified = read(&mut signed.as_slice(), &self.trust(), last.as_ref(), None)
            .map_err(|error| format!("the file that was made cannot be read: {error}"))?;
        if verified.freshness != Freshness::Newer {
            return Err("the file that was made is not newer than the last one".to_owned());
        }
        let (position, bytes) = (verified.position(), bytes::Bytes::from(signed));
        let mut targets = Vec::with_capacity(self.settings.targets.len());
        for target in &self.settings.targets {
            let put = target.put(&self.cell.name, &self.settings.ring, bytes.clone()).await;
            if let Err(error) = &put {
                tracing::warn!(target = target.name(), %error, "a snapshot could not be written");
            }
            let error = put.err().map(|error| error.to_string());
            targets.push(TargetStatus { target: target.name().to_owned(), error });
        }
        let failed = targets.iter().all(|target| target.error.is_some()) && !targets.is_empty();
        self.last = Some(position);
        let status = PublisherStatus {
            publishes: true,
            ring: self.settings.ring.clone(),
            epoch: permit.epoch,
            sequence: permit.sequence,
            fence: permit.fence,
            version: good.published.version,
            rows: good.encoded.rows(),
            content: hexadecimal(&good.encoded.content_hash()),
            published_at: show_time(stamp.published_at),
            content_at: show_time(stamp.content_at),
            targets,
            ..PublisherStatus::default()
        };
        self.broadcast.publish(&self.settings.ring, bytes, status);
        self.remember().await;
        if failed {
            return Err("no target could be written".to_owned());
        }
        Ok(BeatOutcome::Published { sequence: permit.sequence, version: stamp.version })
    }

    /// Notes what was published, so that the guards of the next content compare with it.
    async fn remember(&self) {
        let Some(good) = &self.good else { return };
        let text = serde_json::to_string(&good.published).unwrap_or_default();
        if let Err(error) = self.database.set_published(text).await {
            tracing::warn!(%error, "what was published could not be noted");
        }
    }
}
