//! What a verdict comes to: pass, now or when its turn has come; wait in line; keep for later;
//! refuse.
//!
//! However a request waits, its wait is bounded: by the settings, by what its client says, by
//! the time that its route has in total. One whose turn in a leaky bucket is further off is
//! refused, as one over a limit is, and leaves its turn to the next that comes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::{HeaderValue, RETRY_AFTER};
use http::request::Parts;
use tidegate_engine::{Clock, CounterStore, Nanos, Request, Retry as Again, Verb, Verdict};
use tokio::time::Instant;

use super::active_document::ActiveDocument;
use super::answers::{Answer, Asker, Cause, Retry};
use super::describe::Description;
use super::route::Route;
use tidegate_admission::Charged;
use tidegate_admission::HeldSlots;
use tidegate_admission::{Later, LineKey, Said};
use tidegate_admission::{NoTurn, Patience, Waiting};
use tidegate_answers::Notice;
use tidegate_answers::{Fields, HeadersOn};
use tidegate_metrics::Answered;

/// What a request that may pass takes along.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) held: Option<HeldSlots>,
    pub(super) fields: Fields,
    /// Its turn in a leaky bucket, if it has to wait for one.
    pub(super) turn: Option<Box<Waiting>>,
    /// How its decision is counted.
    pub(super) answered: Answered,
    /// What it gets back if it is shed.
    pub(super) charged: Charged,
}

impl Passage {
    /// Of a request that no limit met.
    pub(super) fn free() -> Self {
        let (fields, answered) = (Fields::default(), Answered::Admitted);
        Passage { held: None, fields, turn: None, answered, charged: Charged::Nothing }
    }
}

/// A request over a limit that does not refuse.
pub(super) struct Over {
    pub(super) later: Later,
    pub(super) line: LineKey,
    /// When to ask again.
    pub(super) wait: Duration,
    /// The answer if nothing comes of it.
    pub(super) answer: Answer,
    pub(super) cause: Cause,
}

/// What a verdict comes to.
pub(super) enum Judged {
    Pass(Passage),
    Over(Over),
    Refused(Answer, Cause),
}

impl<S, C> ActiveDocument<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Asks the engine, and waits for its store.
    pub(super) async fn ask(&self, description: &Description) -> (Verdict, Option<HeldSlots>) {
        let domain = &self.settings.domain;
        let (verdict, permit) = description.described.admit(domain, &self.state.engine).await;
        (verdict, HeldSlots::of(permit))
    }

    pub(super) fn judge(
        &self,
        verdict: &mut Verdict,
        held: Option<HeldSlots>,
        asking: Asking<'_>,
    ) -> Judged {
        if !verdict.is_admitted() {
            return self.judge_refusal(&Notice::of(verdict), asking);
        }
        let fields = match self.settings.headers_on {
            HeadersOn::Always => {
                self.settings.headers.fields_of(verdict, || self.state.engine.clock().now())
            }
            HeadersOn::Refusal => Fields::default(),
        };
        let answered = match verdict.undecided() {
            None => Answered::Admitted,
            Some(_) => Answered::Undecided,
        };
        if verdict.delay() == Nanos::ZERO {
            let charged = self.charged(verdict, asking.description);
            return Judged::Pass(Passage { held, fields, turn: None, answered, charged });
        }
        match self.take_turn(verdict, asking) {
            Ok(turn) => {
                let charged = Charged::Nothing;
                Judged::Pass(Passage { held, fields, turn: Some(turn), answered, charged })
            }
            Err(no_turn) => self.judge_without_turn(verdict, no_turn, asking),
        }
    }

    /// What a refusal comes to.
    fn judge_refusal(&self, notice: &Notice<'_>, asking: Asking<'_>) -> Judged {
        let cause = cause(notice);
        let answer = self.refusal(cause, notice, asking.route, asking.asker);
        let (Some(later), Again::After(wait)) = (Later::of(notice), notice.retry()) else {
            return Judged::Refused(answer, cause);
        };
        let descriptor = notice.tightest().map_or(0, |policy| policy.descriptor());
        let line = self.state.lines.key(&asking.description.described, descriptor);
        Judged::Over(Over { later, line, wait: wait.into(), answer, cause })
    }

    /// What a request that may pass gets back if it is shed; where nobody sheds it is nothing.
    fn charged(&self, verdict: &Verdict, description: &Description) -> Charged {
        if self.state.protection.is_none() {
            return Charged::Nothing;
        }
        let asked = (&self.state.engine, &*self.settings.domain);
        Charged::by(verdict, &description.described, asked)
    }

    /// Takes the turn that a leaky bucket gave, if it is near enough.
    fn take_turn(&self, verdict: &Verdict, asking: Asking<'_>) -> Result<Box<Waiting>, NoTurn> {
        let (later, in_line) = (asking.waits.later(), self.state.lines.waiting());
        let bounds = &self.settings.delay;
        let patience = Patience::new(later, self.patience(asking), bounds, in_line);
        let asked = (&self.state.engine, &*self.settings.domain);
        let described = &asking.description.described;
        self.state.turns.take(described, verdict, asked, patience).map(Box::new)
    }

    /// What a turn comes to that is too far off. Where the rule says so, the request is kept,
    /// once; to wait in line for the same bucket would be to wait longer.
    fn judge_without_turn(
        &self,
        verdict: &mut Verdict,
        NoTurn(retry): NoTurn,
        asking: Asking<'_>,
    ) -> Judged {
        let ActiveDocument { state, settings, .. } = self;
        asking.description.described.ask(&settings.domain, |request| {
            state.engine.turn_away(request, verdict, retry.into());
        });
        match (self.judge_refusal(&Notice::of(verdict), asking), asking.waits) {
            (Judged::Over(over), Waits::Client(_)) if over.later == Later::Queue => {
                Judged::Over(over)
            }
            (Judged::Over(over), _) => Judged::Refused(over.answer, over.cause),
            (judged, _) => judged,
        }
    }

    /// How long a request may still wait.
    fn patience(&self, asking: Asking<'_>) -> Duration {
        let waited = asking.since.map_or(Duration::ZERO, |since| since.elapsed());
        let most = match asking.waits {
            Waits::Nobody => self.settings.queue.wait_max,
            Waits::Client(head) => {
                let total = asking.route.timeouts.total.unwrap_or(Duration::MAX);
                let own = self.categories.timeout(head).unwrap_or(Duration::MAX);
                self.settings.delay.wait_max.min(total).min(own)
            }
        };
        most.saturating_sub(waited)
    }

    fn refusal(&self, cause: Cause, notice: &Notice<'_>, route: &Route, asker: &Asker) -> Answer {
        let retry = match notice.retry_after_seconds() {
            _ if cause == Cause::Concurrency => Retry::After(self.slot_wait()),
            Some(seconds) => Retry::After(seconds),
            None => Retry::Never,
        };
        let mut answer = route.answers.over_limit(cause, notice, retry, asker);
        // Told before: a limit of requests in flight has a time of its own.
        if cause == Cause::Concurrency && !answer.headers().contains_key(RETRY_AFTER) {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(self.slot_wait()));
        }
        if cause != Cause::Undecided {
            let fields = self.settings.headers.fields(notice, self.state.engine.clock().now());
            fields.add_to(answer.headers_mut());
        }
        answer
    }

    /// Seconds after which a slot may be free: as long as they are held, a quarter more or
    /// less, so that those refused together do not come back together.
    fn slot_wait(&self) -> u64 {
        let mean = self.state.counters.hold_nanos.load(Ordering::Relaxed).max(1_000_000_000);
        let draw = self.state.counters.jitter_seed.fetch_add(1, Ordering::Relaxed);
        let spread = draw.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let jittered = mean / 4 * 3 + mean / 512 * spread;
        Nanos::new(jittered).as_secs_ceil().max(1)
    }

    /// Takes note of how long slots were held.
    pub(super) fn slots_were_held_for(&self, held: Nanos) {
        let mean = self.state.counters.hold_nanos.load(Ordering::Relaxed);
        let next = mean - mean / 8 + held.get() / 8;
        self.state.counters.hold_nanos.store(next, Ordering::Relaxed);
    }

    /// Waits in a line until a limit admits the request, but no longer than it may.
    ///
    /// # Errors
    /// The answer, when it does not.
    pub(super) async fn stand_in_line(
        &self,
        over: Option<Over>,
        line: (LineKey, Later),
        asking: Asking<'_>,
    ) -> Result<Passage, (Answer, Cause)> {
        let told = over.map(|over| (over.wait, (over.answer, over.cause)));
        let bounds = self.settings.delay.beside(self.state.turns.waiting());
        let bounds = (&bounds, self.patience(asking));
        let ask = || self.asked(asking);
        match self.state.lines.stand(line, bounds, told, ask).await {
            Ok(passage) => Ok(passage),
            Err(Some(refusal)) => Err(refusal),
            Err(None) => Err(self.last_word(None, asking).await),
        }
    }

    /// What the engine says now.
    async fn asked(&self, asking: Asking<'_>) -> Said<Passage, (Answer, Cause)> {
        let (mut verdict, held) = self.ask(asking.description).await;
        match self.judge(&mut verdict, held, asking) {
            Judged::Pass(passage) => Said::Pass(passage),
            Judged::Over(over) => Said::NotYet(over.wait, (over.answer, over.cause)),
            Judged::Refused(answer, cause) => Said::Refused((answer, cause)),
        }
    }

    /// The answer to a request that came to nothing. One that never asked peeks.
    pub(super) async fn last_word(
        &self,
        over: Option<Over>,
        asking: Asking<'_>,
    ) -> (Answer, Cause) {
        if let Some(over) = over {
            return (over.answer, over.cause);
        }
        let Asking { description, route, asker, .. } = asking;
        let entries = description.described.entries();
        let descriptors = description.described.descriptors(&entries);
        let request = Request::new(&self.settings.domain, &descriptors);
        let verdict = self.state.engine.apply(Verb::Peek, &request).await;
        let notice = Notice::of(&verdict);
        if !notice.is_refusal() {
            // It would pass by now, but others are before it.
            return (route.answers.refused(Cause::Rate, Retry::After(1), asker), Cause::Rate);
        }
        let cause = cause(&notice);
        (self.refusal(cause, &notice, route, asker), cause)
    }
}

/// What it takes to ask the engine, and to answer.
#[derive(Clone, Copy)]
pub(super) struct Asking<'r> {
    pub(super) description: &'r Description,
    pub(super) route: &'r Route,
    pub(super) asker: &'r Asker,
    pub(super) waits: Waits<'r>,
    /// Since when, if it has waited at all.
    pub(super) since: Option<Instant>,
}

/// Who waits for a request.
#[derive(Clone, Copy)]
pub(super) enum Waits<'r> {
    /// Its client, who may say in the head for how long.
    Client(&'r Parts),
    /// Nobody: it is kept, and its client was sent away.
    Nobody,
}

impl Waits<'_> {
    const fn later(self) -> Later {
        match self {
            Waits::Client(_) => Later::Delay,
            Waits::Nobody => Later::Queue,
        }
    }
}

fn cause(notice: &Notice<'_>) -> Cause {
    if notice.is_undecided_refusal() {
        return Cause::Undecided;
    }
    match notice.tightest() {
        Some(policy) if policy.is_violated() && policy.is_concurrency() => Cause::Concurrency,
        _ => Cause::Rate,
    }
}
