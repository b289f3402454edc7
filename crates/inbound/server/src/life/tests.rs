use super::*;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections_max: 1,
    streams_max: 1,
    header_bytes_max: 1,
    header_timeout: Duration::from_secs(10),
    idle_timeout: Some(Duration::from_secs(60)),
    keepalive: None,
    age_max: None,
    age_grace: Duration::from_secs(5),
};

/// A connection that is looked at by hand.
struct Look {
    limits: ConnectionLimits,
    watch: Watch,
    life: Arc<Life>,
    start: Instant,
}

impl Look {
    fn new(limits: ConnectionLimits) -> Self {
        Self::spread(limits, 0.5)
    }

    fn spread(limits: ConnectionLimits, spread: f64) -> Self {
        let counts = Arc::default();
        let counted = || crate::stats::Counted::new(&counts);
        let open = OpenConnection::new(Arc::default(), counted(), counted());
        let life = Arc::new(Life::new("test", open));
        let start = Instant::now();
        let watch = Watch::new(Arc::clone(&life), limits, start, spread);
        Look { limits, watch, life, start }
    }

    fn greeted(limits: ConnectionLimits) -> Self {
        let mut look = Self::new(limits);
        look.life.greeted();
        look.at(0);
        look
    }

    fn at(&mut self, seconds: u64) -> Order {
        let now = self.start + Duration::from_secs(seconds);
        self.watch.seen.judge(&self.limits, self.life.sample(), now)
    }
}

#[test]
fn a_client_that_says_nothing_is_cut() {
    let mut look = Look::greeted(LIMITS);
    assert_eq!(look.at(9), Order::Serve);
    assert_eq!(look.at(10), Order::Cut);
}

#[test]
fn a_client_that_does_not_finish_encrypting_is_cut() {
    let mut look = Look::new(LIMITS);
    look.life.has_read(&[0; 100]);
    assert_eq!(look.at(10), Order::Cut);
}

#[test]
fn time_spent_on_encrypting_is_not_taken_from_the_greeting() {
    let mut look = Look::new(LIMITS);
    assert_eq!(look.at(9), Order::Serve);
    look.life.greeted();
    assert_eq!(look.at(9), Order::Serve);
    assert_eq!(look.at(18), Order::Serve);
    assert_eq!(look.at(19), Order::Cut);
}

#[test]
fn a_client_that_greets_byte_by_byte_is_cut() {
    let mut look = Look::greeted(LIMITS);
    for (second, byte) in (1..).zip(b"PRI * HTT") {
        look.life.has_read(&[*byte]);
        assert_eq!(look.at(second), Order::Serve);
    }
    assert_eq!(look.at(10), Order::Cut);
}

#[test]
fn a_client_that_greeted_in_http2_may_wait_with_its_first_request() {
    let mut look = Look::greeted(LIMITS);
    look.life.has_read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(look.at(59), Order::Serve);
}

#[test]
fn the_first_head_of_http1_has_to_come_in_time() {
    let mut look = Look::greeted(LIMITS);
    look.life.has_read(b"GET / HTTP/1.1\r\nhost: somewhere-in-the-world\r\nx: ");
    assert_eq!(look.at(9), Order::Serve);
    assert_eq!(look.at(10), Order::Cut);
}

#[test]
fn a_later_head_of_http1_has_to_come_in_time() {
    let mut look = Look::greeted(LIMITS);
    look.life.has_read(b"GET / HTTP/1.1\r\n\r\n");
    drop(InFlight::begin(&look.life));
    assert_eq!(look.at(20), Order::Serve);
    look.life.has_read(b"GET /");
    assert_eq!(look.at(30), Order::Serve);
    assert_eq!(look.at(39), Order::Serve);
    assert_eq!(look.at(40), Order::Cut);
}

#[test]
fn a_quiet_connection_is_closed_and_one_that_does_not_go_is_cut() {
    let mut look = Look::greeted(LIMITS);
    look.life.has_read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    drop(InFlight::begin(&look.life));
    assert_eq!(look.at(30), Order::Serve);
    assert_eq!(look.at(89), Order::Serve);
    assert_eq!(look.at(90), Order::Finish);
    assert_eq!(look.at(99), Order::Finish);
    assert_eq!(look.at(100), Order::Cut);
}

#[test]
fn a_request_that_takes_long_keeps_its_connection() {
    let mut look = Look::greeted(LIMITS);
    look.life.has_read(b"GET / HTTP/1.1\r\n\r\n");
    let request = InFlight::begin(&look.life);
    assert_eq!(look.at(1_000), Order::Serve);
    drop(request);
    assert_eq!(look.at(1_059), Order::Serve);
    assert_eq!(look.at(1_060), Order::Finish);
}

#[test]
fn an_old_connection_is_closed_give_or_take_a_tenth() {
    let limits = ConnectionLimits { age_max: Some(Duration::from_secs(100)), ..LIMITS };
    for (spread, age) in [(0.0, 90), (0.5, 100), (1.0, 110)] {
        let mut look = Look::spread(limits, spread);
        look.life.greeted();
        let request = InFlight::begin(&look.life);
        assert_eq!(look.at(age - 1), Order::Serve);
        assert_eq!(look.at(age), Order::Finish);
        assert_eq!(look.at(age + 4), Order::Finish);
        assert_eq!(look.at(age + 5), Order::Cut);
        drop(request);
    }
}

#[test]
fn an_order_is_never_taken_back() {
    let look = Look::new(LIMITS);
    look.life.give(Order::Finish);
    look.life.give(Order::Serve);
    assert_eq!(look.life.order(), Order::Finish);
}
