use super::*;

fn reply(body: &[u8]) -> ScriptReply {
    ScriptReply { server_micros: 0, body: body.to_vec() }
}

#[test]
fn reports_and_settings_are_capped_at_their_width() {
    let settings = FleetSettings {
        reserved_percent: u64::MAX,
        lease: Nanos::MAX,
        beat: Nanos::MAX,
        headroom_percent: u64::MAX,
        growth_percent: u64::MAX,
    };
    let most = Report {
        node: u64::MAX,
        capacity: u64::MAX,
        in_flight: u64::MAX,
        demand: u64::MAX,
        held: u64::MAX,
    };
    let least = body(&FleetSettings::default(), &Report::default());
    let largest = body(&settings, &most);
    assert_eq!(largest.len(), least.len());
    let mut numbers = NumberReader::new(&largest[9..]);
    for _ in 0..4 {
        assert_eq!(numbers.number(4), Some(COUNT_MAX));
    }
    assert_eq!(numbers.number(7), Some(3_600_000_000));
    assert_eq!(numbers.number(1), Some(0), "all is reserved");
}

#[test]
fn a_full_board_is_distinguished_from_a_malformed_reply() {
    assert!(matches!(read_grant(&reply(b"f")), Err(BoardError::Full)));
    for garbage in [&b""[..], b"g", b"full", b"x123", &[b'g'; 31]] {
        assert!(matches!(read_grant(&reply(garbage)), Err(BoardError::Unreachable(_))));
    }
    assert!(read_grant(&reply(&[b'g'; 30])).is_ok());
}

#[test]
fn a_name_that_is_too_long_is_refused() {
    let servers = RedisSettings::parse("redis://127.0.0.1:1").expect("the URL is right");
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    let refused = RedisBoard::new(servers, &long, FleetSettings::default());
    assert!(refused.is_err_and(|why| why.to_string().contains("128")));
}
