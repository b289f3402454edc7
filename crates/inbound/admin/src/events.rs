//! `/api/events`: state, changes and verdicts as they happen, as a `text/event-stream`.
//!
//! A stream makes one frame a second at most, when its connection can take it: a slow reader skips to the newest state,
//! and nothing waits in memory for it. Without streams nothing is computed.

use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use tidegate_engine::{Clock, CounterStore};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::answer::{self, Answer, Problem};
use super::body::{DebugBody, EventSource};
use super::query::Query;
use super::service::Inner;
use super::state_page;

/// Changes that a stream repeats when its reader returns.
const CHANGES_REPLAYED: usize = 100;
/// Seconds after which a stream without news sends a comment.
const HEARTBEAT: u32 = 15;
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The open streams, and the last state that was rendered for all of them.
#[derive(Debug)]
pub(super) struct Streams {
    open: AtomicUsize,
    open_max: usize,
    state: Mutex<Option<(u64, Bytes)>>,
}

impl Streams {
    pub(super) fn new(open_max: usize) -> Self {
        Streams { open: AtomicUsize::new(0), open_max, state: Mutex::new(None) }
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn enter(&self) -> bool {
        let next = |open: usize| (open < self.open_max).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// What a stream sends.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    state: bool,
    verdicts: bool,
    changes: bool,
}

impl Kinds {
    fn parse(words: Option<&str>) -> Result<Self, Problem> {
        let mut kinds = Kinds::default();
        for word in words.unwrap_or("state,changes").split(',') {
            match word {
                "state" => kinds.state = true,
                "verdicts" => kinds.verdicts = true,
                "changes" => kinds.changes = true,
                _ => {
                    let detail = "`kinds` are state, verdicts and changes, with commas between";
                    return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
                }
            }
        }
        Ok(kinds)
    }
}

struct EventStream<S: CounterStore, C: Clock> {
    door: Arc<Inner<S, C>>,
    kinds: Kinds,
    ticks: Interval,
    change: u64,
    verdict: u64,
    quiet: u32,
}

/// Opens a stream.
pub(super) fn open<S: CounterStore, C: Clock>(
    door: &Arc<Inner<S, C>>,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Answer, Problem> {
    let query = Query::parse(query, &["kinds"])?;
    let kinds = Kinds::parse(query.get("kinds"))?;
    if !door.streams.enter() {
        let detail = format!(
            "{} streams are open, which is the maximum; `debug.streams_max` sets it",
            door.streams.open_max
        );
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    let last_id = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.parse().ok());
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = EventStream {
        kinds,
        ticks,
        change: last_id.unwrap_or_else(|| door.audit.last()),
        verdict: if kinds.verdicts { door.parts.observations.tail().watch() } else { 0 },
        quiet: 0,
        door: Arc::clone(door),
    };
    Ok(answer::events(DebugBody::events(stream)))
}

impl<S: CounterStore, C: Clock> EventStream<S, C> {
    /// The news since the last frame.
    fn news(&mut self) -> Bytes {
        let mut text = String::new();
        if self.kinds.changes {
            let mut changes = self.door.audit.newest(self.change, CHANGES_REPLAYED);
            changes.reverse();
            for change in changes {
                self.change = change.id;
                let data = serde_json::to_string(&change).unwrap_or_default();
                let _ = write!(text, "event: change\nid: {}\ndata: {data}\n\n", change.id);
            }
        }
        if self.kinds.verdicts {
            for mut verdict in self.door.parts.observations.tail().after(self.verdict) {
                self.verdict = verdict.id;
                verdict.caller = self.door.show_caller(&verdict.caller).unwrap_or_default();
                let data = serde_json::to_string(&verdict).unwrap_or_default();
                let _ = write!(text, "event: verdict\ndata: {data}\n\n");
            }
        }
        if !self.kinds.state {
            return text.into();
        }
        let state = self.door.shared_state();
        let mut bytes = Vec::with_capacity(text.len() + state.len());
        bytes.extend_from_slice(text.as_bytes());
        bytes.extend_from_slice(&state);
        bytes.into()
    }
}

impl<S: CounterStore, C: Clock> Inner<S, C> {
    /// The state event of this second, rendered once for all streams.
    fn shared_state(&self) -> Bytes {
        let readings = self.recorder.readings();
        let mut shared = self.streams.state.lock();
        match &*shared {
            Some((at, bytes)) if *at == readings && readings > 0 => bytes.clone(),
            _ => {
                let data = state_page::read(self).to_string();
                let bytes = Bytes::from(format!("event: state\ndata: {data}\n\n"));
                *shared = Some((readings, bytes.clone()));
                bytes
            }
        }
    }
}

impl<S: CounterStore, C: Clock> EventSource for EventStream<S, C> {
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Bytes> {
        loop {
            std::task::ready!(self.ticks.poll_tick(context));
            let news = self.news();
            if !news.is_empty() {
                self.quiet = 0;
                return Poll::Ready(news);
            }
            self.quiet += 1;
            if self.quiet >= HEARTBEAT {
                self.quiet = 0;
                return Poll::Ready(Bytes::from_static(b": nothing new\n\n"));
            }
        }
    }
}

impl<S: CounterStore, C: Clock> Drop for EventStream<S, C> {
    fn drop(&mut self) {
        self.door.streams.open.fetch_sub(1, Ordering::Relaxed);
        if self.kinds.verdicts {
            self.door.parts.observations.tail().unwatch();
        }
    }
}
