//! Every promise holds for the corpus, for a fixed number of its changed inputs, and for inputs that
//! are too large to keep. `make fuzz` continues with fresh seeds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tidegate_fuzz::{Corpus, Finding, Fuzzer, TargetName};

const SEED: u64 = 1;
const TEN_MEGABYTES: usize = 10_000_000;

fn give(fuzzer: &mut Fuzzer, input: &[u8]) {
    fuzzer.give(input).unwrap_or_else(|finding| panic!("{finding}"));
}

/// Replays the corpus of a target, then tries so many changed inputs. Returns the number of trails.
fn run(target: TargetName, times: u32) -> usize {
    let kept = Corpus::of(target).read().unwrap();
    assert!(kept.len() > 4, "{target} has kept inputs");
    let mut fuzzer = Fuzzer::new(target, kept, SEED);
    fuzzer.replay().unwrap_or_else(|finding: Box<Finding>| panic!("{finding}"));
    let before = fuzzer.trails();
    for _ in 0..times {
        let input = fuzzer.draw();
        give(&mut fuzzer, &input);
    }
    assert!(fuzzer.trails() > before, "damage leads somewhere new");
    fuzzer.trails()
}

#[test]
fn damaged_rules_are_compiled_or_refused_at_places_that_exist() {
    assert!(run(TargetName::Rules, 5_000) > 200);
}

#[test]
fn damaged_recordings_are_played_or_refused_and_no_line_is_lost() {
    assert!(run(TargetName::Logs, 300) > 5);
}

#[test]
fn damaged_configuration_is_read_or_refused_at_places_that_exist() {
    assert!(run(TargetName::Config, 5_000) > 50);
}

#[test]
fn every_route_answers_damaged_json_as_its_document_says() {
    assert!(run(TargetName::Json, 20_000) > 100);
}

#[test]
fn damaged_messages_are_read_as_prost_reads_them() {
    assert!(run(TargetName::Rls, 20_000) > 30);
}

#[test]
fn the_gateway_answers_damaged_connections_and_forwards_only_what_it_wrote() {
    assert!(run(TargetName::Gateway, 1_000) > 10);
}

#[test]
fn damaged_answers_of_targets_have_an_outcome_within_bounds() {
    assert!(run(TargetName::Delivery, 20_000) > 30);
}

#[test]
fn pages_answer_damaged_queries_and_bodies_and_show_no_formula() {
    assert!(run(TargetName::Pages, 300) > 10);
}

#[test]
fn ten_megabytes_of_nesting_do_no_harm() {
    let cases: [(TargetName, &[u8]); 8] = [
        (TargetName::Rules, b"["),
        (TargetName::Rules, b"? "),
        (TargetName::Config, b"{a: "),
        (TargetName::Config, b"- "),
        (TargetName::Json, b"["),
        (TargetName::Json, b"{\"descriptors\":["),
        (TargetName::Rls, b"\x0B"),
        (TargetName::Rls, b"\x12\x80\x80\x80\x04"),
    ];
    for (target, part) in cases {
        let mut fuzzer = Fuzzer::new(target, Vec::new(), SEED);
        give(&mut fuzzer, &part.repeat(TEN_MEGABYTES / part.len()));
        assert_eq!(fuzzer.trails(), 1);
    }
}

#[test]
fn nesting_that_just_fits_the_doors_does_no_harm() {
    let cases: [(TargetName, &[u8], usize); 4] = [
        (TargetName::Json, b"[", 256 * 1024),
        (TargetName::Json, b"{\"descriptors\":[", 16 * 1024),
        (TargetName::Rls, b"\x4B", 1 << 20),
        (TargetName::Rls, b"\x12\x80\x80\x40", 1 << 18),
    ];
    for (target, part, times) in cases {
        let mut fuzzer = Fuzzer::new(target, Vec::new(), SEED);
        give(&mut fuzzer, &part.repeat(times));
        assert_eq!(fuzzer.trails(), 1);
    }
}
