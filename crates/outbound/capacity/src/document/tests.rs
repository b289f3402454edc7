use super::*;
use crate::limits::{Dimension, TargetLimit};

fn limits(amount: u64, slots: u16) -> TargetLimits {
    TargetLimits::with_slots(vec![TargetLimit::per_second(Dimension::Operations, amount)], slots)
        .unwrap()
}

fn document(slots: u16) -> CapacityDocument {
    CapacityDocument::new(limits(500, slots), Vec::new(), 7, 100, false)
}

fn heartbeat(member: &str, wants: u16) -> Heartbeat {
    Heartbeat {
        member: member.to_owned(),
        pool: CapacityDocument::DEFAULT_POOL.to_owned(),
        weight: 1,
        wants,
        reserve: 0,
        holds: Vec::new(),
        incarnation: None,
        brake_ppm: Pace::WHOLE,
        hold_ms: None,
        expires_ms: 15_000,
    }
}

fn beat(document: &mut CapacityDocument, member: &str, wants: u16) -> Grant {
    document.heartbeat(&heartbeat(member, wants)).unwrap()
}

#[test]
fn a_process_that_wants_four_of_twenty_slots_gets_the_two_that_are_free_and_returns_them_early() {
    // The text's scene: 500 operations a second as 20 partitions of 25.
    let mut document = document(20);
    assert_eq!(beat(&mut document, "others", 18).slots.len(), 18);
    assert_eq!(
        beat(&mut document, "process", 4).slots.len(),
        2,
        "the others have not given anything back yet"
    );
    document.leave("process");
    assert_eq!(beat(&mut document, "others", 20).slots.len(), 20);
}

#[test]
fn members_converge_to_equal_shares_within_two_rounds() {
    let mut document = document(100);
    for round in 0..2 {
        for member in ["a", "b", "c", "d"] {
            let grant = beat(&mut document, member, 100);
            assert!(round == 0 || grant.slots.len() == 25, "{member}: {}", grant.slots.len());
        }
    }
}

#[test]
fn an_epoch_grows_whenever_a_slot_changes_its_owner() {
    let mut document = document(1);
    let first = beat(&mut document, "a", 1).slots[0];
    assert_eq!(beat(&mut document, "a", 1).slots[0], first, "renewing keeps the epoch");
    document.leave("a");
    let second = beat(&mut document, "b", 1).slots[0];
    assert!(second.epoch > first.epoch);
}

#[test]
fn a_settling_document_returns_slots_to_their_holders_and_gives_nothing_else() {
    let mut old = document(10);
    let held = beat(&mut old, "a", 4);
    let mut fresh = CapacityDocument::new(limits(500, 10), Vec::new(), 8, 1_000, true);
    assert!(beat(&mut fresh, "newcomer", 10).slots.is_empty());
    let mut again = heartbeat("a", 10);
    again.holds.clone_from(&held.slots);
    again.incarnation = Some(7);
    let kept = fresh.heartbeat(&again).unwrap();
    let numbers = |grant: &Grant| grant.slots.iter().map(|lease| lease.slot).collect::<Vec<_>>();
    assert_eq!(numbers(&kept), numbers(&held));
    fresh.settle();
    assert_eq!(beat(&mut fresh, "newcomer", 10).slots.len(), 5);
}

#[test]
fn the_lowest_brake_holds_and_only_its_member_raises_it() {
    let mut document = document(10);
    let report = |document: &mut CapacityDocument, member: &str, level: u32| {
        let grant =
            document.heartbeat(&Heartbeat { brake_ppm: level, ..heartbeat(member, 5) }).unwrap();
        (grant.brake_ppm, grant.probes)
    };
    assert_eq!(report(&mut document, "a", 1_000_000), (1_000_000, true));
    assert_eq!(report(&mut document, "b", 600_000), (600_000, true));
    assert_eq!(report(&mut document, "a", 1_000_000), (600_000, false));
    assert_eq!(report(&mut document, "b", 610_000), (610_000, true));
    document.leave("b");
    assert!(report(&mut document, "a", 610_000).1, "another member probes when the prober is gone");
}

#[test]
fn a_prober_without_work_hands_over_and_the_next_begins_at_the_shared_level() {
    let mut document = document(10);
    let mut report = |member: &str, wants: u16, level: u32| {
        let beat = Heartbeat { brake_ppm: level, ..heartbeat(member, wants) };
        let grant = document.heartbeat(&beat).unwrap();
        (grant.brake_ppm, grant.probes)
    };
    assert_eq!(report("a", 5, 300_000), (300_000, true));
    assert_eq!(report("a", 0, 300_000), (300_000, true), "nobody else is there");
    // It joins with a level of its own that knows nothing of the target.
    assert_eq!(report("b", 5, 1_000_000), (300_000, true));
    assert_eq!(report("a", 0, 300_000), (300_000, false));
    assert_eq!(report("b", 5, 310_000), (310_000, true));
}

#[test]
fn a_hold_reaches_every_member_with_its_number() {
    let mut document = document(10);
    document.heartbeat(&Heartbeat { hold_ms: Some(30_000), ..heartbeat("a", 5) }).unwrap();
    let hold = beat(&mut document, "b", 5).hold.unwrap();
    assert_eq!((hold.number, hold.length_ms), (1, 30_000));
}

#[test]
fn limits_change_while_members_run_but_not_the_number_of_slots() {
    let mut document = document(10);
    let before = beat(&mut document, "a", 5).revision;
    document.set_limits(limits(250, 10)).unwrap();
    let grant = beat(&mut document, "a", 5);
    assert_eq!(grant.limits.limits()[0].amount, 250);
    assert_eq!(grant.revision, before + 1);
    assert_eq!(document.set_limits(limits(250, 20)), Err(LimitsError::Slots(20)));
}

#[test]
fn a_document_survives_its_encoding_and_a_hundred_slots_take_less_than_four_kilobytes() {
    let mut document = document(100);
    for member in ["one", "two", "three", "four"] {
        beat(&mut document, member, 100);
    }
    let bytes = document.encode().unwrap();
    assert!(bytes.len() < 4_096, "{}", bytes.len());
    assert_eq!(CapacityDocument::decode(&bytes).unwrap(), document);
}

#[test]
fn damaged_documents_are_refused_with_a_reason() {
    let text = String::from_utf8(document(2).encode().unwrap()).unwrap();
    let damaged = [
        (text.replace("\"format\":1", "\"format\":9"), "format 9"),
        (text.replace("\"slots\":2", "\"slots\":0"), "between 1 and 1000 slots"),
        (text.replace("\"slots\":2", "\"slots\":3"), "the number of slots"),
        (text.replace("[0,100]", "[4,100]"), "unknown member"),
        (text.replace("\"amount\":500", "\"amount\":0"), "between 1 and"),
        (text.replace("\"brake_ppm\":1000000", "\"brake_ppm\":2000000"), "the brake"),
        ("[]".to_owned(), "cannot be read"),
        (String::new(), "cannot be read"),
    ];
    for (text, reason) in damaged {
        let error = CapacityDocument::decode(text.as_bytes()).expect_err(&text).to_string();
        assert!(error.contains(reason), "{error} for {text}");
    }
}
