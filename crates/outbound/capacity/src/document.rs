//! The document that the members of a target share, and the operation that changes it.
//!
//! A store keeps one [`CapacityDocument`] per target and replaces it only if it is unchanged since it was read. One
//! operation, [`CapacityDocument::heartbeat`], does everything that a member needs: it drops members whose lease has
//! expired, records what this one wants, computes the fair shares, gives back the slots above its share, takes free ones
//! up to it, and renews the rest. It does no I/O, so every store that can compare and set is enough.

mod quotas;

use serde::{Deserialize, Serialize};

use crate::limits::{LimitsError, TargetLimit, TargetLimits};
use crate::pacing::Pace;
use crate::quota::QuotaLedger;
use crate::shares::{Pool, ShareRequest, fair_shares};

/// The format that this version reads and writes.
const FORMAT: u32 = 1;

/// The state of a target that its members share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapacityDocument {
    format: u32,
    incarnation: u64,
    /// Set while holders of an earlier, lost document may still use their slots.
    settling: bool,
    revision: u64,
    limits: TargetLimits,
    pools: Vec<Pool>,
    brake_ppm: u32,
    /// The number of the member that may raise the brake.
    prober: u64,
    hold: Option<TargetHold>,
    /// The number of the member that joined last; the first is 1.
    last_number: u64,
    members: Vec<MemberEntry>,
    slots: Vec<SlotEntry>,
    /// One for each limit over a long window, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    quotas: Vec<QuotaLedger>,
    /// The number of the chunk that was taken last.
    #[serde(default, skip_serializing_if = "is_zero")]
    last_chunk: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A target that is closed for a while, because it asked to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetHold {
    /// Distinguishes this hold from the ones before it.
    pub number: u64,
    /// Milliseconds from the moment at which the hold was recorded.
    pub length_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MemberEntry {
    number: u64,
    id: String,
    pool: String,
    weight: u32,
    wants: u16,
    reserve: u16,
    /// Grows with each heartbeat, for stores without a clock.
    beat: u64,
    /// By the store's clock; zero if it has none.
    expires_ms: u64,
}

/// The number of the owner, zero if there is none, and how often the owner has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SlotEntry(u64, u64);

/// A slot with its epoch, which grows whenever the slot changes its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotLease {
    /// The number of the slot.
    pub slot: u16,
    /// Its epoch; a service that knows epochs rejects older ones.
    pub epoch: u64,
}

/// What a member says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The name of the member, unique among the members of the target.
    pub member: String,
    /// The name of its pool.
    pub pool: String,
    /// Its weight within the pool.
    pub weight: u32,
    /// The slots that it can use now.
    pub wants: u16,
    /// The slots that it keeps also while it is idle.
    pub reserve: u16,
    /// The slots that it holds by a document of this incarnation.
    pub holds: Vec<SlotLease>,
    /// The incarnation that `holds` belong to.
    pub incarnation: Option<u64>,
    /// The level of its own brake.
    pub brake_ppm: u32,
    /// A hold that the target asked this member for.
    pub hold_ms: Option<u64>,
    /// When the lease ends by the store's clock; zero if the store has none.
    pub expires_ms: u64,
}

/// What a member gets from a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The slots that it holds until its lease ends.
    pub slots: Vec<SlotLease>,
    /// The slots that it should have; it gets the rest once others give them back.
    pub fair_share: u16,
    /// The incarnation that the slots belong to.
    pub incarnation: u64,
    /// The revision of the limits.
    pub revision: u64,
    /// The limits of the target.
    pub limits: TargetLimits,
    /// The level of the shared brake.
    pub brake_ppm: u32,
    /// Whether this member may raise the shared brake.
    pub probes: bool,
    /// The latest hold of the target.
    pub hold: Option<TargetHold>,
    /// The number of members.
    pub members: usize,
    /// When the first lease of another member ends by the store's clock, if it has one.
    pub first_expiry_ms: Option<u64>,
}

/// A document that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Not a document at all.
    #[error("the lease document cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// Written by another version.
    #[error("the lease document has format {0}; this version reads {FORMAT}")]
    Format(u32),
    /// With limits that cannot be kept.
    #[error("the lease document has wrong limits: {0}")]
    Limits(#[from] LimitsError),
    /// With parts that contradict each other.
    #[error("the lease document contradicts itself: {0}")]
    Inconsistent(&'static str),
}

impl CapacityDocument {
    /// The most members of a target.
    pub const MEMBERS_MAX: usize = 1_000;
    /// The pool of members that name none.
    pub const DEFAULT_POOL: &'static str = "default";

    /// A document without members.
    ///
    /// `epoch` is a number that no earlier document of the target has reached, such as the seconds since 1970. `settling`
    /// says that an earlier document may have been lost: until it is settled, members only keep what they hold.
    pub fn new(
        limits: TargetLimits,
        pools: Vec<Pool>,
        incarnation: u64,
        epoch: u64,
        settling: bool,
    ) -> Self {
        let slots = vec![SlotEntry(0, epoch); usize::from(limits.slots())];
        let quotas = vec![QuotaLedger::default(); limits.quotas().count()];
        // Numbers of an earlier document, which members may restore, begin elsewhere.
        let last_chunk = if quotas.is_empty() { 0 } else { incarnation.wrapping_shl(16) };
        CapacityDocument {
            format: FORMAT,
            incarnation,
            settling,
            revision: 1,
            limits,
            pools: with_default(pools),
            brake_ppm: Pace::WHOLE,
            prober: 0,
            hold: None,
            last_number: 0,
            members: Vec::new(),
            slots,
            quotas,
            last_chunk,
        }
    }

    /// Reads a document, and checks everything that the other operations rely on.
    ///
    /// # Errors
    /// When the bytes are no document of this version, or contradict themselves.
    pub fn decode(bytes: &[u8]) -> Result<Self, DocumentError> {
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let format = serde_json::from_slice::<FormatOnly>(bytes)?.format;
        if format != FORMAT {
            return Err(DocumentError::Format(format));
        }
        let document: CapacityDocument = serde_json::from_slice(bytes)?;
        document.limits.validate()?;
        document.check()?;
        Ok(document)
    }

    fn check(&self) -> Result<(), DocumentError> {
        let inconsistent = |reason| Err(DocumentError::Inconsistent(reason));
        if self.slots.len() != usize::from(self.limits.slots()) {
            return inconsistent("the number of slots");
        }
        if self.members.len() > Self::MEMBERS_MAX {
            return inconsistent("too many members");
        }
        if !self.members.is_sorted_by(|one, next| one.number < next.number) {
            return inconsistent("members are not in order");
        }
        if self.members.iter().any(|member| member.number == 0 || member.number > self.last_number)
        {
            return inconsistent("the number of a member");
        }
        if self.slots.iter().any(|SlotEntry(owner, _)| *owner != 0 && self.member(*owner).is_none())
        {
            return inconsistent("a slot of an unknown member");
        }
        if self.quotas.len() != self.limits.quotas().count() {
            return inconsistent("the number of quotas");
        }
        if self.brake_ppm > Pace::WHOLE {
            return inconsistent("the brake");
        }
        Ok(())
    }

    /// The document as bytes.
    ///
    /// # Errors
    /// Never in practice: every field can be written.
    pub fn encode(&self) -> Result<Vec<u8>, DocumentError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Which creation of the document this is; another one means that the store lost it in between.
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether members only keep what they hold, because an earlier document may have been lost.
    pub const fn is_settling(&self) -> bool {
        self.settling
    }

    /// The limits of the target.
    pub const fn limits(&self) -> &TargetLimits {
        &self.limits
    }

    /// The members with their slots, for people to look at.
    pub fn holders(&self) -> impl Iterator<Item = SlotHolder<'_>> {
        self.members.iter().map(|member| SlotHolder {
            member: &member.id,
            pool: &member.pool,
            wants: member.wants,
            slots: self.owned_by(member.number).count(),
        })
    }

    /// Replaces the limits of the running target. The number of slots stays.
    ///
    /// Each member paces by the new limits from its next heartbeat on. Until then it uses its slots' part of the limits
    /// that it knows, so that all together stay below the highest limits of the last lease. Raising need not wait for
    /// the others for that reason.
    ///
    /// # Errors
    /// When the number of slots differs.
    pub fn set_limits(&mut self, limits: TargetLimits) -> Result<(), LimitsError> {
        if limits.slots() != self.limits.slots() {
            return Err(LimitsError::Slots(limits.slots()));
        }
        // What was taken of a quota stays counted if the quota is still there.
        let kept = |limit: &TargetLimit| {
            let same = |(old, _): &(&TargetLimit, &QuotaLedger)| {
                old.dimension == limit.dimension && old.window_ms == limit.window_ms
            };
            let found = self.limits.quotas().zip(&self.quotas).find(same);
            found.map(|(_, ledger)| ledger.clone()).unwrap_or_default()
        };
        self.quotas = limits.quotas().map(kept).collect();
        self.limits = limits;
        self.revision += 1;
        Ok(())
    }

    /// Ends the settling: every holder of a lost document has registered or expired.
    pub const fn settle(&mut self) {
        self.settling = false;
    }

    /// Settles once more, under a new incarnation: members may use capacity that they do not hold by this document.
    /// Slots have no owner until members whose leases last register them again.
    pub(crate) fn settle_again(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
        self.settling = true;
        for slot in &mut self.slots {
            slot.0 = 0;
        }
    }

    /// The beats of all members, for [`crate::Observer`].
    pub(crate) fn beats(&self) -> impl Iterator<Item = (u64, u64)> {
        self.members.iter().map(|member| (member.number, member.beat))
    }

    /// Drops the members that `is_expired` names, by their number and the end of their lease; their slots become free.
    pub(crate) fn drop_expired(&mut self, is_expired: impl Fn(u64, u64) -> bool) {
        self.members.retain(|member| !is_expired(member.number, member.expires_ms));
        let members = &self.members;
        let is_member =
            |number: u64| members.binary_search_by_key(&number, |member| member.number).is_ok();
        for slot in &mut self.slots {
            if !is_member(slot.0) {
                slot.0 = 0;
            }
        }
    }

    /// Registers a member or renews its lease, and moves its slots to its fair share as far as slots are free.
    ///
    /// # Errors
    /// When there are too many members.
    pub fn heartbeat(&mut self, heartbeat: &Heartbeat) -> Result<Grant, TooManyMembers> {
        let number = self.register(heartbeat)?;
        if self.settling {
            self.restore(number, heartbeat);
        }
        self.update_brake(number, heartbeat);
        let fair_share = self.fair_share(number);
        self.resize(
            number,
            if self.settling { fair_share.min(self.owned(number)) } else { fair_share },
        );
        Ok(self.grant(number, fair_share))
    }

    /// Removes a member that stops; its slots are free at once.
    pub fn leave(&mut self, member: &str) {
        let Some(number) = self.number_of(member) else { return };
        self.drop_expired(|other, _| other == number);
    }

    fn register(&mut self, heartbeat: &Heartbeat) -> Result<u64, TooManyMembers> {
        let index = match self.members.iter().position(|member| member.id == heartbeat.member) {
            Some(index) => index,
            None if self.members.len() >= Self::MEMBERS_MAX => return Err(TooManyMembers),
            None => {
                self.last_number += 1;
                self.members.push(MemberEntry {
                    number: self.last_number,
                    id: heartbeat.member.clone(),
                    pool: String::new(),
                    weight: 0,
                    wants: 0,
                    reserve: 0,
                    beat: 0,
                    expires_ms: 0,
                });
                self.members.len() - 1
            }
        };
        let member = &mut self.members[index];
        member.pool.clone_from(&heartbeat.pool);
        member.weight = heartbeat.weight;
        member.wants = heartbeat.wants;
        member.reserve = heartbeat.reserve;
        member.beat += 1;
        member.expires_ms = heartbeat.expires_ms;
        Ok(member.number)
    }

    /// Gives a member the slots back that it holds by a lost document, unless another has registered them before.
    fn restore(&mut self, number: u64, heartbeat: &Heartbeat) {
        if heartbeat.incarnation == Some(self.incarnation) {
            return;
        }
        for lease in &heartbeat.holds {
            if let Some(slot) = self.slots.get_mut(usize::from(lease.slot))
                && slot.0 == 0
            {
                *slot = SlotEntry(number, slot.1.max(lease.epoch));
            }
        }
    }

    fn update_brake(&mut self, number: u64, heartbeat: &Heartbeat) {
        let probed = self.prober == number;
        // A member without work meets no limit, so that it cannot tell how far the level may rise.
        let probes = self.member(self.prober).is_some_and(|prober| prober.wants > 0);
        if !probes && (heartbeat.wants > 0 || self.member(self.prober).is_none()) {
            self.prober = number;
        }
        let level = heartbeat.brake_ppm.min(Pace::WHOLE);
        // A member that begins to probe begins at the shared level, which it may not have heard of yet.
        let level = if probed { level } else { level.min(self.brake_ppm) };
        if level < self.brake_ppm || self.prober == number {
            // A member that meets the limit becomes the one that probes how far it can rise again.
            self.prober = number;
            self.brake_ppm = level;
        }
        if let Some(length_ms) = heartbeat.hold_ms {
            let number = self.hold.map_or(1, |hold| hold.number + 1);
            self.hold = Some(TargetHold { number, length_ms });
        }
    }

    fn fair_share(&self, number: u64) -> u16 {
        let request = |member: &MemberEntry| ShareRequest {
            pool: self.pool_index(&member.pool),
            weight: member.weight,
            wants: member.wants,
            reserve: member.reserve,
        };
        let requests: Vec<_> = self.members.iter().map(request).collect();
        let shares = fair_shares(self.limits.slots(), &self.pools, &requests);
        let index = self.members.iter().position(|member| member.number == number);
        index.and_then(|index| shares.get(index)).copied().unwrap_or(0)
    }

    /// The index of a pool; an unknown one counts as the default pool.
    fn pool_index(&self, name: &str) -> usize {
        let find = |name: &str| self.pools.iter().position(|pool| pool.name == name);
        find(name).or_else(|| find(Self::DEFAULT_POOL)).unwrap_or(usize::MAX)
    }

    /// Frees the highest slots above `share`, or takes the lowest free ones up to it.
    fn resize(&mut self, number: u64, share: u16) {
        let mut owned = self.owned(number);
        for slot in self.slots.iter_mut().rev().filter(|slot| slot.0 == number) {
            if owned <= share {
                break;
            }
            slot.0 = 0;
            owned -= 1;
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.0 == 0) {
            if owned >= share {
                break;
            }
            *slot = SlotEntry(number, slot.1 + 1);
            owned += 1;
        }
    }

    fn grant(&self, number: u64, fair_share: u16) -> Grant {
        let others =
            self.members.iter().filter(|member| member.number != number && member.expires_ms > 0);
        Grant {
            slots: self.owned_by(number).collect(),
            fair_share,
            incarnation: self.incarnation,
            revision: self.revision,
            limits: self.limits.clone(),
            brake_ppm: self.brake_ppm,
            probes: self.prober == number,
            hold: self.hold,
            members: self.members.len(),
            first_expiry_ms: others.map(|member| member.expires_ms).min(),
        }
    }

    fn member(&self, number: u64) -> Option<&MemberEntry> {
        let index = self.members.binary_search_by_key(&number, |member| member.number).ok()?;
        self.members.get(index)
    }

    pub(crate) fn number_of(&self, member: &str) -> Option<u64> {
        self.members.iter().find(|entry| entry.id == member).map(|entry| entry.number)
    }

    fn owned(&self, number: u64) -> u16 {
        u16::try_from(self.owned_by(number).count()).unwrap_or(u16::MAX)
    }

    fn owned_by(&self, number: u64) -> impl Iterator<Item = SlotLease> {
        let numbered = (0u16..).zip(&self.slots);
        numbered
            .filter(move |(_, slot)| slot.0 == number)
            .map(|(index, slot)| SlotLease { slot: index, epoch: slot.1 })
    }
}

/// One member with what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHolder<'a> {
    /// The name of the member.
    pub member: &'a str,
    /// The name of its pool.
    pub pool: &'a str,
    /// The slots that it can use.
    pub wants: u16,
    /// The slots that it holds.
    pub slots: usize,
}

/// A target has no room for another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the target has {} members already", CapacityDocument::MEMBERS_MAX)]
pub struct TooManyMembers;

fn with_default(mut pools: Vec<Pool>) -> Vec<Pool> {
    if !pools.iter().any(|pool| pool.name == CapacityDocument::DEFAULT_POOL) {
        let name = CapacityDocument::DEFAULT_POOL.to_owned();
        pools.push(Pool { name, weight: 1, slots_min: 0, slots_max: u16::MAX });
    }
    pools
}

#[cfg(test)]
mod tests;
