//! The cases, one function each.

use std::time::Duration;

use tidegate_capacity::{
    CapacityStore, Cost, Dimension, MemberTerms, StoredDocument, Target, TargetLimit, TargetLimits,
    TargetMember,
};
use tokio::time::sleep;

use crate::StoreHarness;

const TARGET: &str = "orders database";
/// Looks at a condition; far more than any needs.
const LOOKS_MAX: usize = 3_000;
const LOOK_PAUSE: Duration = Duration::from_millis(10);
const SLOTS: u16 = 20;

async fn put(store: &impl CapacityStore, read: &StoredDocument, text: &str) -> bool {
    store.replace(TARGET, read, text.as_bytes().to_vec()).await.unwrap()
}

/// Reads until the store answers: a connection may have to be made again.
async fn read_again(store: &impl CapacityStore) -> StoredDocument {
    for _ in 0..LOOKS_MAX {
        if let Ok(read) = store.read(TARGET).await {
            return read;
        }
        sleep(LOOK_PAUSE).await;
    }
    panic!("the store does not answer again");
}

pub(crate) async fn a_document_is_created_once(harness: impl StoreHarness) {
    let (first, second) = (harness.connect(), harness.connect());
    let absent = first.read(TARGET).await.unwrap();
    assert_eq!(absent.bytes, None);
    assert!(put(&first, &absent, "first").await);
    assert!(!put(&second, &absent, "second").await, "another member created it");
    assert_eq!(second.read(TARGET).await.unwrap().bytes.unwrap(), b"first");
}

pub(crate) async fn a_document_is_replaced_only_if_it_is_unchanged(harness: impl StoreHarness) {
    let (first, second) = (harness.connect(), harness.connect());
    assert!(put(&first, &first.read(TARGET).await.unwrap(), "one").await);
    let (seen, also_seen) = (first.read(TARGET).await.unwrap(), second.read(TARGET).await.unwrap());
    assert!(put(&first, &seen, "two").await);
    assert!(!put(&second, &also_seen, "lost").await);
    assert!(!put(&first, &seen, "lost").await, "what was read is of use once");
    let now = second.read(TARGET).await.unwrap();
    assert_eq!(now.bytes.as_deref(), Some(b"two".as_slice()));
    assert!(put(&second, &now, "three").await);
    assert_eq!(first.read(TARGET).await.unwrap().bytes.unwrap(), b"three");
}

pub(crate) async fn targets_are_separate(harness: impl StoreHarness) {
    let store = harness.connect();
    let names = ["a", "a/b", "a b", "ä", "A"];
    for name in names {
        let absent = store.read(name).await.unwrap();
        assert_eq!(absent.bytes, None, "{name}");
        assert!(store.replace(name, &absent, name.as_bytes().to_vec()).await.unwrap(), "{name}");
    }
    for name in names {
        assert_eq!(store.read(name).await.unwrap().bytes.unwrap(), name.as_bytes());
    }
}

pub(crate) async fn documents_of_a_large_target_fit(harness: impl StoreHarness) {
    let store = harness.connect();
    // A thousand slots and members, with every byte value.
    let large: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let absent = store.read(TARGET).await.unwrap();
    assert!(store.replace(TARGET, &absent, large.clone()).await.unwrap());
    let read = store.read(TARGET).await.unwrap();
    assert_eq!(read.bytes.as_ref(), Some(&large));
    assert!(put(&store, &read, "small").await);
}

pub(crate) async fn concurrent_writers_lose_no_update(harness: impl StoreHarness) {
    const WRITERS: usize = 4;
    const UPDATES: u32 = 8;
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let store = harness.connect();
            tokio::spawn(async move {
                for _ in 0..UPDATES {
                    loop {
                        let read = store.read(TARGET).await.unwrap();
                        let text =
                            read.bytes.clone().map(|bytes| String::from_utf8(bytes).unwrap());
                        let count: u32 = text.map_or(0, |text| text.parse().unwrap());
                        let next = (count + 1).to_string().into_bytes();
                        if store.replace(TARGET, &read, next).await.unwrap() {
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let sum = harness.connect().read(TARGET).await.unwrap().bytes.unwrap();
    assert_eq!(sum, (WRITERS * UPDATES as usize).to_string().into_bytes());
}

pub(crate) async fn a_store_with_a_clock_shows_the_same_time_to_all<H: StoreHarness>(harness: H) {
    let stores = [harness.connect(), harness.connect()];
    let mut last = 0;
    for store in stores.iter().cycle().take(6) {
        let time = store.read(TARGET).await.unwrap().time_ms;
        assert_eq!(time.is_some(), H::HAS_CLOCK);
        assert!(time.unwrap_or(last) >= last, "the clock went back");
        last = time.unwrap_or(last);
    }
}

pub(crate) async fn a_wiped_store_has_no_document_and_refuses_the_one_that_was_read(
    harness: impl StoreHarness,
) {
    let store = harness.connect();
    assert!(put(&store, &store.read(TARGET).await.unwrap(), "old").await);
    let old = store.read(TARGET).await.unwrap();
    harness.wipe(TARGET).await;
    // A connection that the loss has ended may return one error.
    let late = store.replace(TARGET, &old, b"late".to_vec()).await;
    assert!(!late.unwrap_or(false));
    let absent = read_again(&store).await;
    assert_eq!(absent.bytes, None);
    assert!(put(&store, &absent, "new").await);
    assert!(!put(&store, &old, "late").await);
    assert_eq!(store.read(TARGET).await.unwrap().bytes.unwrap(), b"new");
}

pub(crate) async fn a_lost_answer_is_an_error_and_a_second_replacement_is_refused(
    harness: impl StoreHarness,
) {
    let store = harness.connect();
    assert!(put(&store, &store.read(TARGET).await.unwrap(), "old").await);
    let old = store.read(TARGET).await.unwrap();
    let Some(line) = harness.line() else { return };
    line.hold_replies();
    assert!(store.replace(TARGET, &old, b"new".to_vec()).await.is_err());
    line.cut();
    line.release_replies();
    line.mend();
    // The write reached the server, so the same replacement is refused now.
    let read = read_again(&store).await;
    assert_eq!(read.bytes.as_deref(), Some(b"new".as_slice()));
    assert!(!put(&store, &old, "new").await);
    assert!(put(&store, &read, "newer").await);
}

pub(crate) async fn an_outage_is_an_error_and_ends(harness: impl StoreHarness) {
    let store = harness.connect();
    assert!(put(&store, &store.read(TARGET).await.unwrap(), "kept").await);
    let Some(line) = harness.line() else { return };
    line.cut();
    assert!(store.read(TARGET).await.is_err());
    line.mend();
    assert_eq!(read_again(&store).await.bytes.unwrap(), b"kept");
}

/// Stores the document that [`documents_survive_a_crash`] looks for.
pub(crate) async fn store_kept(store: &impl CapacityStore) {
    assert!(put(store, &store.read(TARGET).await.unwrap(), "kept").await);
}

pub(crate) async fn documents_survive_a_crash(mut harness: impl StoreHarness) {
    store_kept(&harness.connect()).await;
    if harness.crash().await.is_some() {
        assert_eq!(read_again(&harness.connect()).await.bytes.unwrap(), b"kept");
    }
}

fn join<H: StoreHarness>(harness: &H, name: &str) -> TargetMember<H::Store> {
    let limit = TargetLimit::per_second(Dimension::Operations, 500);
    let limits = TargetLimits::with_slots(vec![limit], SLOTS).unwrap();
    let terms = MemberTerms { lease: Duration::from_secs(1), ..MemberTerms::named(name) };
    let member = TargetMember::join(harness.connect(), Target::new(TARGET, limits), terms);
    member.set_backlog(Cost { operations: 100_000, bytes: 0, units: 0 });
    member
}

/// Waits until each member holds at least this many slots, while all together never hold more than there are.
async fn shares_reach<S: CapacityStore>(members: &[&TargetMember<S>], slots: usize) {
    for _ in 0..LOOKS_MAX {
        let shares: Vec<_> = members.iter().map(|member| member.slots().len()).collect();
        assert!(shares.iter().sum::<usize>() <= usize::from(SLOTS), "{shares:?}");
        if shares.iter().all(|share| *share >= slots) {
            return;
        }
        sleep(LOOK_PAUSE).await;
    }
    let errors: Vec<_> =
        members.iter().map(|member| (member.slots().len(), member.last_error())).collect();
    panic!("{errors:?}, wanted {slots} each");
}

pub(crate) async fn members_share_the_slots_and_inherit_those_of_a_member_that_is_gone(
    harness: impl StoreHarness,
) {
    let (first, second) = (join(&harness, "first"), join(&harness, "second"));
    shares_reach(&[&first, &second], 10).await;
    drop(second);
    shares_reach(&[&first], 20).await;
}

pub(crate) async fn members_keep_their_slots_when_the_store_forgets_everything(
    harness: impl StoreHarness,
) {
    if !harness.connect().outlived_by_members() {
        return;
    }
    let (first, second) = (join(&harness, "first"), join(&harness, "second"));
    shares_reach(&[&first, &second], 10).await;
    harness.wipe(TARGET).await;
    let third = join(&harness, "third");
    shares_reach(&[&first, &second, &third], 6).await;
}
