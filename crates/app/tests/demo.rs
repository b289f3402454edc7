//! `tidegate demo`, scripted through standard input.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::{Ran, printed, run, run_with};

fn demo(lines: &[&str]) -> Ran {
    run_with(&["demo"], &lines.join("\n"))
}

/// The answers to these lines, without the greeting.
#[track_caller]
fn answers(lines: &[&str]) -> Vec<String> {
    let ran = demo(lines);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    // Each line is answered by a paragraph; the greeting is two.
    ran.stdout.trim_end().split("\n\n").skip(2).map(str::to_owned).collect()
}

/// The only answer to the last of these lines.
#[track_caller]
fn last(lines: &[&str]) -> String {
    answers(lines).pop().unwrap()
}

/// In each row of an answer, whether it was admitted.
fn outcomes(answer: &str) -> Vec<bool> {
    let rows = answer.lines().filter(|row| row.contains("admitted  ") || row.contains("refused  "));
    rows.map(|row| row.contains("admitted")).collect()
}

#[test]
fn three_things_to_try_are_said_first_and_they_work() {
    let greeting = demo(&[]);
    assert_eq!(greeting.code, 0);
    let text = greeting.stdout;
    assert!(text.starts_with("Tidegate demo: 10 rules of domain shop\n"), "{text}");
    let tries: Vec<&str> =
        text.lines().skip(4).take(3).filter_map(|line| line.trim().split("  ").next()).collect();
    assert_eq!(tries.len(), 3);
    assert_eq!(answers(&tries).len(), 3);
}

#[test]
fn a_burst_passes_and_then_the_rate_holds() {
    let answers = answers(&["user=ada x12", "wait 1s", "user=ada x6"]);
    assert_eq!(outcomes(&answers[0]), [[true; 10].as_slice(), &[false; 2]].concat());
    let eleventh = answers[0].lines().nth(11).unwrap();
    let expected = "  11  refused   user  5 per second, up to 10 at once  0 of 10        200ms";
    assert_eq!(eleventh, expected);
    assert_eq!(answers[1], "  1s later");
    assert_eq!(outcomes(&answers[2]), [true, true, true, true, true, false]);
}

#[test]
fn waiting_exactly_as_long_as_was_said_is_enough_and_less_is_not() {
    let burst = "user=ada x10";
    assert_eq!(outcomes(&last(&[burst, "wait 199ms", "user=ada"])), [false]);
    assert_eq!(outcomes(&last(&[burst, "wait 200ms", "user=ada"])), [true]);
}

#[test]
fn the_same_script_gives_the_same_answers() {
    let script = ["user=ada x12", "wait 100ms", "user=ada", "ip=192.0.2.1 x99", "mail=a x7"];
    assert_eq!(demo(&script).stdout, demo(&script).stdout);
}

#[test]
fn a_request_alone_shows_every_limit_that_it_meets() {
    let answer = last(&["user=ada -- ip=10.0.0.1"]);
    for row in [
        "  1  admitted  user           5 per second, up to 10 at once      9 of 10",
        "     admits    user           1000 per day                    999 of 1000",
        "     admits    ip_10.0.0.0/8  600 per minute                   599 of 600",
    ] {
        assert!(answer.lines().any(|line| line == row), "{row}\n{answer}");
    }
}

#[test]
fn many_requests_are_shown_where_the_answer_changes_and_counted() {
    let answer = last(&["user=ada x500"]);
    let rows: Vec<&str> = answer.lines().collect();
    assert_eq!(outcomes(&answer), [true, false, false]);
    assert_eq!(rows.len(), 7, "{answer}");
    assert_eq!(rows[2], "    …");
    assert!(rows[3].starts_with("   11  refused"), "{answer}");
    assert_eq!(rows[6], "  500 requests: 10 admitted, 490 refused");
}

#[test]
fn a_cost_counts_as_so_many_requests() {
    assert_eq!(outcomes(&last(&["user=ada --cost 8", "user=ada --cost 3"])), [false]);
    assert!(last(&["user=ada --cost 11"]).contains("never"), "more than fits is never admitted");
}

#[test]
fn a_peek_charges_nothing_and_a_reset_forgets() {
    let twice = answers(&["peek user=ada", "peek user=ada"]);
    assert_eq!(twice[0], twice[1]);
    let answers = answers(&["user=ada x11", "reset user=ada", "user=ada"]);
    assert!(answers[1].starts_with("  forgotten; the next such request would get:"));
    assert!(answers[1].contains("10 of 10"), "{}", answers[1]);
    assert_eq!(outcomes(&answers[2]), [true]);
}

#[test]
fn requests_that_are_held_take_slots_until_they_are_released() {
    let report = "user=ada path=/reports/1";
    let hold = format!("hold {report} x3");
    let answers = answers(&[&hold, report, "release", report]);
    assert_eq!(outcomes(&answers[0]), [true, true, false]);
    assert!(answers[0].ends_with("2 requests held, 2 in flight; `release` ends them"));
    assert_eq!(outcomes(&answers[1]), [false]);
    assert_eq!(answers[2], "  2 requests ended");
    assert_eq!(outcomes(&answers[3]), [true]);
    let plain = format!("{report} x5");
    assert_eq!(outcomes(&last(&[&plain])), [true; 5], "a plain request gives its slot back");
    let long = last(&[&hold, "wait 2h", report]);
    assert_eq!(outcomes(&long), [false], "however long they take");
    assert!(last(&["hold mail=a"]).contains("there is nothing to hold"));
}

#[test]
fn a_leaky_bucket_says_how_long_a_request_waits_for_its_turn() {
    let answer = last(&["mail=ops x6"]);
    assert!(answer.contains("waits 500ms for its turn"), "{answer}");
    assert_eq!(outcomes(&answer), [true, true, true, true, true, false]);
}

#[test]
fn a_rule_in_shadow_reports_and_refuses_no_request() {
    let answer = last(&["search=cats x2"]);
    assert_eq!(outcomes(&answer), [true, true]);
    assert!(answer.ends_with("1s  in shadow: would refuse"), "{answer}");
}

#[test]
fn a_rule_can_be_switched_and_switched_back() {
    let login = "user=ada path=/login x4";
    let answers = answers(&[
        "mode user.path_/login shadow",
        login,
        "rules",
        "mode user.path_/login default",
        login,
    ]);
    assert_eq!(answers[0], "  user.path_/login: 1 limit switched to shadow");
    assert_eq!(outcomes(&answers[1]), [true; 4]);
    let row = answers[2].lines().find(|row| row.contains("/login")).unwrap();
    assert!(row.ends_with("shadow"), "{row}");
    assert_eq!(answers[3], "  user.path_/login: 1 limit as in the rule file again");
    assert_eq!(outcomes(&answers[4]), [false; 4]);
    assert!(last(&["mode mail off", "mail=a"]).contains("rule mail is switched off"));
}

#[test]
fn the_kill_switch_admits_everything_and_counts_nothing() {
    let answers = answers(&["off", "user=ada x20", "on", "user=ada x10"]);
    assert_eq!(answers[0], "  everything is admitted, nothing is counted");
    assert!(answers[1].contains("20 requests: 20 admitted, 0 refused"), "{}", answers[1]);
    assert_eq!(answers[2], "  limits hold again");
    assert_eq!(outcomes(&answers[3]), [true; 10]);
}

#[test]
fn what_meets_no_rule_is_admitted_and_told_so() {
    assert!(
        last(&["usr=ada"]).ends_with("no rule is met, so nothing limits this; `explain` says why")
    );
    assert!(last(&["user=admin"]).ends_with("rule user_admin is unlimited"));
    assert!(last(&["explain usr=ada"]).ends_with("hint: did you mean `user=ada`?"));
}

#[test]
fn a_line_that_is_not_understood_is_told_and_the_rest_goes_on() {
    let ran = demo(&["wiat 1s", "user=ada", "mode usr shadow"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stdout.contains("error: no command is called `wiat`\nhelp: did you mean `wait`?"));
    assert!(ran.stdout.contains("1  admitted  user"), "{}", ran.stdout);
    assert!(
        ran.stdout
            .contains("error: no rule with limits is called `usr`\nhelp: did you mean `user`?")
    );
}

#[test]
fn quit_ends_before_the_rest() {
    let ran = demo(&["quit", "nonsense"]);
    assert_eq!(ran.code, 0);
    assert!(!ran.stdout.contains("nonsense"));
}

#[test]
fn a_pipe_gets_neither_prompt_nor_colours() {
    let ran = demo(&["user=ada", "# a comment", ""]);
    assert!(!ran.stdout.contains('\u{1b}'));
    assert!(!ran.stdout.lines().any(|line| line.starts_with('>')), "{}", ran.stdout);
}

#[test]
fn other_rules_come_with_something_to_try_that_meets_one() {
    let rules = ["demo", "--rules", "rules"];
    let ran = run_with(&rules, "client=ada x20\ndomain shop\nuser=ada\ndomain shp\n");
    assert_eq!(ran.code, 2);
    assert!(ran.stdout.starts_with("Tidegate demo: 1 rule of domain api\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n  client=ada x20  twenty requests at once\n"));
    assert!(ran.stdout.contains("20 requests: 20 admitted, 0 refused"));
    assert!(ran.stdout.contains("\n  domain shop: 9 rules\n"));
    assert!(ran.stdout.contains("error: no domain is called `shp`\nhelp: did you mean `shop`?"));
    let ran = run(&["demo", "--rules", "rules", "--domain", "nope"]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stderr, "error: no domain is called `nope`\nhelp: the rules have: api, shop\n");
    assert_eq!(run(&["demo", "--rules", "broken.yaml"]).code, 1);
}

#[test]
fn the_built_in_rules_can_be_printed_and_are_right() {
    let rules = printed(&["demo", "--print-rules"]);
    let ran = run_with(&["rules", "check", "--deny-warnings", "-"], &rules);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1 file ok: 1 domain, 10 rules, 10 limits\n"));
}
