use super::*;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections_max: 1,
    streams_max: 1,
    header_bytes_max: 1,
    header_timeout: Duration::from_secs(10),
    idle_timeout: Some(Duration::from_secs(60)),
    send_rate_min: 100,
    send_rate_window: Duration::from_secs(60),
    send_rate_window_pressed: Duration::from_secs(5),
    held_bytes_max: 1,
    held_bytes_total: 1,
    evict_after: None,
    keepalive: None,
    age_max: None,
    age_grace: Duration::from_secs(5),
};

/// A connection whose timeouts are checked by hand.
struct TestConnection {
    limits: ConnectionLimits,
    watch: TimeoutWatch,
    state: Arc<ConnectionState>,
    start: Instant,
}

impl TestConnection {
    fn new(limits: ConnectionLimits) -> Self {
        Self::jitter(limits, 0.5)
    }

    fn jitter(limits: ConnectionLimits, jitter: f64) -> Self {
        let counts = Arc::default();
        let counted = || crate::stats::CountGuard::new(&counts);
        let open = OpenConnection::new(Arc::default(), counted(), counted());
        let state = Arc::new(ConnectionState::new("test", open, None));
        let start = Instant::now();
        let watch = TimeoutWatch::new(Arc::clone(&state), limits, start, jitter);
        TestConnection { limits, watch, state, start }
    }

    fn handshaken(limits: ConnectionLimits) -> Self {
        let mut connection = Self::new(limits);
        connection.state.set_handshaken();
        connection.at(0);
        connection
    }

    fn at(&mut self, seconds: u64) -> Order {
        let now = self.start + Duration::from_secs(seconds);
        let rates = RateLimits::new(&self.limits, None);
        self.watch.timeouts.judge(&self.limits, &rates, self.state.sample(), now)
    }
}

#[test]
fn a_silent_client_is_cut() {
    let mut connection = TestConnection::handshaken(LIMITS);
    assert_eq!(connection.at(9), Order::Serve);
    assert_eq!(connection.at(10), Order::Cut);
}

#[test]
fn a_client_that_does_not_finish_the_tls_handshake_is_cut() {
    let mut connection = TestConnection::new(LIMITS);
    connection.state.record_read(&[0; 100]);
    assert_eq!(connection.at(10), Order::Cut);
}

#[test]
fn the_tls_handshake_does_not_shorten_the_time_for_the_preface() {
    let mut connection = TestConnection::new(LIMITS);
    assert_eq!(connection.at(9), Order::Serve);
    connection.state.set_handshaken();
    assert_eq!(connection.at(9), Order::Serve);
    assert_eq!(connection.at(18), Order::Serve);
    assert_eq!(connection.at(19), Order::Cut);
}

#[test]
fn a_client_that_sends_the_preface_byte_by_byte_is_cut() {
    let mut connection = TestConnection::handshaken(LIMITS);
    for (second, byte) in (1..).zip(b"PRI * HTT") {
        connection.state.record_read(&[*byte]);
        assert_eq!(connection.at(second), Order::Serve);
    }
    assert_eq!(connection.at(10), Order::Cut);
}

#[test]
fn a_client_that_sent_the_preface_may_wait_with_its_first_request() {
    let mut connection = TestConnection::handshaken(LIMITS);
    connection.state.record_read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(connection.at(59), Order::Serve);
}

#[test]
fn the_first_http1_head_must_arrive_in_time() {
    let mut connection = TestConnection::handshaken(LIMITS);
    connection.state.record_read(b"GET / HTTP/1.1\r\nhost: somewhere-in-the-world\r\nx: ");
    assert_eq!(connection.at(9), Order::Serve);
    assert_eq!(connection.at(10), Order::Cut);
}

#[test]
fn a_later_http1_head_must_arrive_in_time() {
    let mut connection = TestConnection::handshaken(LIMITS);
    connection.state.record_read(b"GET / HTTP/1.1\r\n\r\n");
    drop(InFlightRequest::begin(&connection.state));
    assert_eq!(connection.at(20), Order::Serve);
    connection.state.record_read(b"GET /");
    assert_eq!(connection.at(30), Order::Serve);
    assert_eq!(connection.at(39), Order::Serve);
    assert_eq!(connection.at(40), Order::Cut);
}

#[test]
fn an_idle_connection_is_closed_and_cut_if_it_does_not_close() {
    let mut connection = TestConnection::handshaken(LIMITS);
    connection.state.record_read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    drop(InFlightRequest::begin(&connection.state));
    assert_eq!(connection.at(30), Order::Serve);
    assert_eq!(connection.at(89), Order::Serve);
    assert_eq!(connection.at(90), Order::Finish);
    assert_eq!(connection.at(99), Order::Finish);
    assert_eq!(connection.at(100), Order::Cut);
}

#[test]
fn a_slow_request_keeps_its_connection_open() {
    let mut connection = TestConnection::handshaken(LIMITS);
    connection.state.record_read(b"GET / HTTP/1.1\r\n\r\n");
    let request = InFlightRequest::begin(&connection.state);
    assert_eq!(connection.at(1_000), Order::Serve);
    drop(request);
    assert_eq!(connection.at(1_059), Order::Serve);
    assert_eq!(connection.at(1_060), Order::Finish);
}

#[test]
fn an_old_connection_is_closed_give_or_take_a_tenth() {
    let limits = ConnectionLimits { age_max: Some(Duration::from_secs(100)), ..LIMITS };
    for (jitter, age) in [(0.0, 90), (0.5, 100), (1.0, 110)] {
        let mut connection = TestConnection::jitter(limits, jitter);
        connection.state.set_handshaken();
        let request = InFlightRequest::begin(&connection.state);
        assert_eq!(connection.at(age - 1), Order::Serve);
        assert_eq!(connection.at(age), Order::Finish);
        assert_eq!(connection.at(age + 4), Order::Finish);
        assert_eq!(connection.at(age + 5), Order::Cut);
        drop(request);
    }
}

#[test]
fn an_order_is_never_revoked() {
    let connection = TestConnection::new(LIMITS);
    connection.state.set_order(Order::Finish);
    connection.state.set_order(Order::Serve);
    assert_eq!(connection.state.order(), Order::Finish);
}

#[test]
fn a_client_that_takes_too_little_of_what_is_written_is_cut() {
    for (bytes, order) in [(5_999, Order::Cut), (6_001, Order::Serve)] {
        let mut connection = TestConnection::handshaken(LIMITS);
        connection.state.record_read(b"GET / HTTP/1.1\r\n\r\n");
        let _request = InFlightRequest::begin(&connection.state);
        connection.state.record_write(None);
        assert_eq!(connection.at(1), Order::Serve);
        connection.state.record_write(Some(bytes));
        connection.state.record_write(None);
        assert_eq!(connection.at(60), Order::Serve);
        assert_eq!(connection.at(61), order);
    }
}

#[test]
fn a_client_that_took_everything_in_between_is_not_slow() {
    let mut connection = TestConnection::handshaken(LIMITS);
    connection.state.record_read(b"GET / HTTP/1.1\r\n\r\n");
    let _request = InFlightRequest::begin(&connection.state);
    for second in 1..=1_000 {
        connection.state.record_write(None);
        if second % 50 == 0 {
            connection.state.record_flush(true);
        }
        assert_eq!(connection.at(second), Order::Serve);
    }
}

#[test]
fn a_connection_whose_last_response_is_still_written_is_not_idle() {
    let limits = ConnectionLimits { send_rate_min: 0, ..LIMITS };
    let mut connection = TestConnection::handshaken(limits);
    connection.state.record_read(b"GET / HTTP/1.1\r\n\r\n");
    drop(InFlightRequest::begin(&connection.state));
    connection.state.record_write(None);
    assert_eq!(connection.at(1_000), Order::Serve);
    connection.state.record_flush(true);
    assert_eq!(connection.at(1_059), Order::Serve);
    assert_eq!(connection.at(1_060), Order::Finish);
}
