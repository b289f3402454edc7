//! Lines, on tokio's clock.

use tokio::task::yield_now;

use super::*;

fn bounds(waiting_max: usize, line_max: usize) -> DelaySettings {
    DelaySettings { waiting_max, line_max, ..DelaySettings::default() }
}

fn described(user: &str) -> Described {
    Described::new().descriptor([("user", user)])
}

#[tokio::test]
async fn turns_come_in_order_and_a_place_given_up_is_the_next_ones() {
    let lines = Arc::new(Lines::new());
    let key = lines.key(&described("1"), 0);
    let join = || lines.join(key, Later::Delay, &bounds(10, 10)).unwrap();
    let (first, second, third) = (join(), join(), join());
    first.turn().await;
    let waiting = tokio::spawn(async move { third.turn().await });
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
fn lines_are_bounded_each_and_together() {
    let lines = Arc::new(Lines::new());
    let (one, two) = (lines.key(&described("1"), 0), lines.key(&described("2"), 0));
    let join = |key| lines.join(key, Later::Delay, &bounds(3, 2));
    let _held = [join(one).unwrap(), join(one).unwrap()];
    assert_eq!(join(one).unwrap_err(), LineFull);
    let _other = join(two).unwrap();
    assert_eq!(join(two).unwrap_err(), LineFull);
    assert_eq!(lines.waiting(), 3);
}

#[test]
fn newcomers_see_the_line_that_they_have_to_join() {
    let lines = Arc::new(Lines::new());
    assert_eq!(lines.standing(&described("1")), None);
    let key = lines.key(&described("1"), 0);
    let _first = lines.join(key, Later::Delay, &bounds(3, 2)).unwrap();
    assert_eq!(lines.standing(&described("1")), Some((key, Later::Delay)));
    assert_eq!(lines.standing(&described("2")), None);
}
