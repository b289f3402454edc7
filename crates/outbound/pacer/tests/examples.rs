//! The examples do what they say.

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/background_worker.rs"]
mod background_worker;

#[tokio::test(start_paused = true)]
async fn the_background_worker_sends_at_its_pace_and_puts_the_rest_back() {
    let mut lines = background_worker::send_mails().expect("the default budget");
    let mut seen = Vec::new();
    while let Some(line) = lines.recv().await {
        seen.push(line);
    }
    seen.sort();
    assert_eq!(seen.len(), 12);
    assert_eq!(seen.first().map(String::as_str), Some("0.000 s  mail 1 sent"));
    assert_eq!(seen.last().map(String::as_str), Some("1.800 s  mail 10 sent"));
    let put_back: Vec<_> = seen.iter().filter(|line| line.contains("put back")).collect();
    assert_eq!(put_back.len(), 2, "{seen:?}");
    assert_eq!(put_back[0], "0.000 s  mail 11 put back for 200ms");
}
