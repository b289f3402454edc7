//! Lines, on a paused clock.

use tokio::task::yield_now;

use super::*;

fn bounds(waiting_max: usize, line_max: usize) -> DelaySettings {
    DelaySettings { waiting_max, line_max, ..DelaySettings::default() }
}

fn description(user: &str) -> RequestDescription {
    RequestDescription::new().descriptor([("user", user)])
}

#[tokio::test]
async fn requests_leave_in_order_and_move_up_when_one_gives_up() {
    let lines = Arc::new(Lines::new());
    let key = lines.key(&description("1"), 0);
    let join = || lines.join(key, WaitMode::Delay, &bounds(10, 10)).unwrap();
    let (first, second, third) = (join(), join(), join());
    first.wait_for_front().await;
    let waiting = tokio::spawn(async move { third.wait_for_front().await });
    yield_now().await;
    drop(second);
    yield_now().await;
    assert!(!waiting.is_finished());
    drop(first);
    waiting.await.unwrap();
    assert_eq!(lines.waiting(), 0);
    assert!(lines.lines.lock().is_empty());
}

#[test]
fn each_line_and_all_lines_are_bounded() {
    let lines = Arc::new(Lines::new());
    let (one, two) = (lines.key(&description("1"), 0), lines.key(&description("2"), 0));
    let join = |key| lines.join(key, WaitMode::Delay, &bounds(3, 2));
    let _held = [join(one).unwrap(), join(one).unwrap()];
    assert_eq!(join(one).unwrap_err(), LineFull);
    let _other = join(two).unwrap();
    assert_eq!(join(two).unwrap_err(), LineFull);
    assert_eq!(lines.waiting(), 3);
}

#[test]
fn a_new_request_finds_the_line_that_it_has_to_join() {
    let lines = Arc::new(Lines::new());
    assert_eq!(lines.ahead_of(&description("1")), None);
    let key = lines.key(&description("1"), 0);
    let _first = lines.join(key, WaitMode::Delay, &bounds(3, 2)).unwrap();
    assert_eq!(lines.ahead_of(&description("1")), Some((key, WaitMode::Delay)));
    assert_eq!(lines.ahead_of(&description("2")), None);
}
