use super::*;

fn guard(settings: GuardSettings, mode: Mode) -> (Arc<ConnectionGuard>, DoorGuard) {
    let guard = Arc::new(ConnectionGuard::new(settings, mode));
    let door = guard.add_door("http", Arc::default());
    (guard, door)
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn enter(door: &DoorGuard, from: &str) -> Entrance {
    door.enter(address(from), false)
}

fn refusals(guard: &ConnectionGuard, cause: RefusalCause) -> [u64; 2] {
    guard.state.lock().doors[0].refusals[cause as usize]
}

fn unlimited() -> GuardSettings {
    GuardSettings {
        open_max: None,
        rate: None,
        handshakes_max: None,
        door_handshakes_max: None,
        ..GuardSettings::default()
    }
}

fn admitted(entrance: Entrance) -> NetworkSlot {
    match entrance {
        Entrance::Admitted(slot) => slot,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_has_so_many_open_and_a_closed_one_makes_room() {
    let settings = GuardSettings { open_max: Some(2), ..unlimited() };
    let (guard, door) = guard(settings, Mode::ENFORCE);
    let first = admitted(enter(&door, "192.0.2.1"));
    let _second = admitted(enter(&door, "::ffff:192.0.2.1"));
    assert!(matches!(enter(&door, "192.0.2.1"), Entrance::Refused));
    let _other = admitted(enter(&door, "192.0.2.2"));
    drop(first);
    let _third = admitted(enter(&door, "192.0.2.1"));
    assert!(matches!(enter(&door, "192.0.2.1"), Entrance::Refused));
    assert_eq!(refusals(&guard, RefusalCause::Open), [2, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_network_has_a_rate_and_a_refusal_charges_nothing() {
    let rate = Some(ConnectionRate { per_second: 2, burst: 3 });
    let (guard, door) = guard(GuardSettings { rate, ..unlimited() }, Mode::ENFORCE);
    let count =
        || (0..10).filter(|_| !matches!(enter(&door, "2001:db8::1"), Entrance::Refused)).count();
    assert_eq!(count(), 3);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(count(), 2);
    assert!(matches!(enter(&door, "2001:db8::2"), Entrance::Refused), "of the same /64");
    assert!(matches!(enter(&door, "2001:db8:0:1::1"), Entrance::Admitted(_)));
    assert_eq!(refusals(&guard, RefusalCause::Rate), [16, 0]);
}

#[tokio::test(start_paused = true)]
async fn shadow_counts_what_enforce_refuses() {
    let rate = Some(ConnectionRate { per_second: 1, burst: 3 });
    let mut counted = Vec::new();
    for mode in [Mode::Shadow, Mode::ENFORCE] {
        let settings = GuardSettings { rate, open_max: Some(50), ..unlimited() };
        let (guard, door) = guard(settings, mode);
        let mut refused = 0;
        for _ in 0..20 {
            refused += usize::from(matches!(enter(&door, "192.0.2.1"), Entrance::Refused));
        }
        assert_eq!(refused, if mode == Mode::Shadow { 0 } else { 17 });
        let [enforced, shadow] = refusals(&guard, RefusalCause::Rate);
        counted.push(enforced + shadow);
        assert_eq!(guard.networks(1)[0].refused, 17);
    }
    assert_eq!(counted, [17, 17]);
}

#[tokio::test(start_paused = true)]
async fn a_percentage_enforces_for_some_networks_always_and_for_others_never() {
    let settings = GuardSettings { open_max: Some(0), ..unlimited() };
    let (_, door) = guard(settings, Mode::Enforce(Percent::new(40)));
    let refused = |number: u32| {
        let address = IpAddr::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number));
        matches!(door.enter(address, false), Entrance::Refused)
    };
    let chosen: Vec<u32> = (0..2_000).filter(|number| refused(*number)).collect();
    assert!((700..900).contains(&chosen.len()), "{}", chosen.len());
    assert!(chosen.iter().all(|number| refused(*number)));
}

#[tokio::test(start_paused = true)]
async fn exempt_networks_the_kill_switch_and_off_admit_everything() {
    let exempt = vec!["10.0.0.0/8".parse().unwrap()];
    let settings = GuardSettings { open_max: Some(0), exempt, ..unlimited() };
    let (guard, door) = guard(settings, Mode::ENFORCE);
    assert!(matches!(enter(&door, "10.1.2.3"), Entrance::Unguarded));
    assert!(matches!(enter(&door, "11.1.2.3"), Entrance::Refused));
    guard.switch_off(true);
    assert!(matches!(enter(&door, "11.1.2.3"), Entrance::Unguarded));
    guard.switch_off(false);
    guard.set_mode(Mode::Off);
    assert!(matches!(enter(&door, "11.1.2.3"), Entrance::Unguarded));
    assert_eq!(refusals(&guard, RefusalCause::Open), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn handshakes_under_way_are_limited_by_network_and_by_door() {
    let settings =
        GuardSettings { handshakes_max: Some(2), door_handshakes_max: Some(3), ..unlimited() };
    let (guard, door) = guard(settings, Mode::ENFORCE);
    let slot = |from: &str| admitted(enter(&door, from));
    let (first, second, third) = (slot("192.0.2.1"), slot("192.0.2.1"), slot("192.0.2.1"));
    let (other, another) = (slot("192.0.2.2"), slot("192.0.2.3"));
    let begun = first.begin_handshake().unwrap();
    let _second = second.begin_handshake().unwrap();
    assert!(third.begin_handshake().is_none());
    let _other = other.begin_handshake().unwrap();
    assert!(another.begin_handshake().is_none(), "the door has its maximum");
    drop(begun);
    assert!(third.begin_handshake().is_some());
    assert_eq!(refusals(&guard, RefusalCause::Handshakes), [1, 0]);
    assert_eq!(refusals(&guard, RefusalCause::DoorHandshakes), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_door_over_its_rate_pauses_until_there_is_room() {
    let door_rate = Some(ConnectionRate { per_second: 10, burst: 2 });
    let (guard, door) = guard(GuardSettings { door_rate, ..unlimited() }, Mode::ENFORCE);
    assert_eq!([door.pause(), door.pause()], [None, None]);
    let wait = door.pause().unwrap();
    assert!(wait <= Duration::from_millis(100), "{wait:?}");
    tokio::time::advance(wait).await;
    assert_eq!(door.pause(), None);
    guard.set_mode(Mode::Shadow);
    assert_eq!(door.pause(), None);
    assert_eq!(guard.state.lock().doors[0].pauses, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_full_door_refuses_the_newest_connection_of_the_greediest_network() {
    let (guard, door) = guard(unlimited(), Mode::ENFORCE);
    let greedy: Vec<_> = (0..5).map(|_| admitted(enter(&door, "192.0.2.1"))).collect();
    let honest = admitted(enter(&door, "192.0.2.2"));
    let newcomer = admitted(enter(&door, "192.0.2.1"));
    assert_eq!(door.make_room(7, Some(&newcomer)), FullDoor::Refused);
    // Without a connection behind them, they had ended: the next one is tried.
    let newcomer = admitted(enter(&door, "192.0.2.3"));
    assert_eq!(door.make_room(7, Some(&newcomer)), FullDoor::NoneGreedy);
    drop((greedy, honest, newcomer));
    assert_eq!(guard.state.lock().doors[0].networks.networks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_door_of_many_networks_has_none_that_is_greedy() {
    let (_, door) = guard(unlimited(), Mode::ENFORCE);
    let _open: Vec<_> =
        (1..=100).map(|last| admitted(enter(&door, &format!("192.0.2.{last}")))).collect();
    let newcomer = admitted(enter(&door, "198.51.100.1"));
    assert_eq!(door.make_room(101, Some(&newcomer)), FullDoor::NoneGreedy);
}

#[tokio::test(start_paused = true)]
async fn only_enforced_refusals_of_clients_that_the_kernel_sees_are_reported() {
    let (guard, door) = guard(GuardSettings { open_max: Some(0), ..unlimited() }, Mode::Shadow);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&seen);
    guard.set_hook(Box::new(move |address| reported.lock().push(address)));
    drop(enter(&door, "192.0.2.1"));
    guard.set_mode(Mode::ENFORCE);
    drop(enter(&door, "::ffff:192.0.2.2"));
    drop(door.enter(address("192.0.2.3"), true));
    assert_eq!(*seen.lock(), [address("192.0.2.2")]);
}
