//! What a verdict comes to, and waiting for what it comes to.
//!
//! A request waits in two ways. Over a limit with `when_over: delay` it stands in line, has been
//! charged nothing, and asks again when it is in front. A leaky bucket admits it for later: it has
//! been charged, and waits for its turn. Whoever goes away gives up its place, and what it was
//! charged. Lines are those of the gateway (`line`); what becomes of turns is told in `turns`.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tidegate_engine::{Clock, CounterStore, Deposit, Nanos, Permit, Retry, Verb, Verdict};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::answer::refuse;
use super::body::Held;
use super::future::{Passage, Settled};
use super::settings::Settings;
use super::turns::{NoTurn, Turn};
use crate::described::Described;
use crate::headers::{Fields, HeadersOn};
use crate::line::{Later, LineKey, Said};
use crate::notice::Notice;

/// After how long to ask again when a line is full that would let others pass.
const FULL_LINE_WAIT: Nanos = Nanos::from_secs(1);

/// What a verdict comes to.
pub(super) enum Ruled<T: CounterStore + Send + Sync + 'static, C: Clock + Send + Sync + 'static> {
    Refused(Response<Bytes>),
    Passed(Passage),
    /// It passes when its turn has come.
    Turn(Box<Waiting<T, C>>, Passage),
    /// It waits in line, and may ask again after this long. The answer is for when nothing comes
    /// of it.
    Over(LineKey, Duration, Response<Bytes>),
}

/// A request that waits for its turn. Dropping it gives back what it was charged, unless its turn has come.
pub(super) struct Waiting<T: CounterStore + Send + Sync + 'static, C: Clock + Send + Sync + 'static>
{
    turn: Turn,
    deposit: Option<Deposit<T, C>>,
}

impl<T, C> Waiting<T, C>
where
    T: CounterStore + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    async fn come(mut self: Box<Self>) {
        self.turn.come().await;
        self.deposit = None;
    }
}

impl<T, C> Drop for Waiting<T, C>
where
    T: CounterStore + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if let Some(deposit) = self.deposit.take()
            && !self.turn.has_come()
        {
            give_back(deposit);
        }
    }
}

/// Gives a deposit back: at once to the embedded store, in the background to another.
fn give_back<T, C>(deposit: Deposit<T, C>)
where
    T: CounterStore + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    // Who waited did so on a runtime; when that is gone, the charge stays.
    let Ok(runtime) = Handle::try_current() else { return };
    if deposit.is_empty() {
        return;
    }
    let mut giving = Box::pin(deposit.give_back());
    if giving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        runtime.spawn(giving);
    }
}

impl<T, C> Settings<T, C>
where
    T: CounterStore + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    /// What a verdict comes to for a request that waits no longer than `patience`.
    pub(super) fn rule_on(
        &self,
        request: &Parts,
        described: &Described,
        verdict: &mut Verdict,
        permit: Permit<T, C>,
        patience: Duration,
    ) -> Ruled<T, C> {
        let notice = Notice::of(verdict);
        let now = self.engine.clock().now();
        if notice.is_refusal() {
            let answer = refuse(self, request, &notice, now);
            let later = if self.wait_for_turn { Later::of(&notice) } else { None };
            return match (later, notice.retry()) {
                (Some(Later::Delay), Retry::After(wait)) => {
                    let place = notice.tightest().map_or(0, |policy| policy.descriptor());
                    Ruled::Over(self.lines.key(described, place), wait.into(), answer)
                }
                _ => Ruled::Refused(answer),
            };
        }
        let fields = match self.headers_on {
            HeadersOn::Always => self.headers.fields(&notice, now),
            HeadersOn::Refusal => Fields::default(),
        };
        drop(notice);
        let after = verdict.delay();
        if after == Nanos::ZERO || !self.wait_for_turn {
            return Ruled::Passed(Passage::new(Held::new(permit), fields));
        }
        match self.turn_of(described, verdict, after.into(), patience) {
            Ok(waiting) => Ruled::Turn(Box::new(waiting), Passage::new(Held::new(permit), fields)),
            Err(NoTurn(retry)) => {
                drop(permit);
                Ruled::Refused(self.refuse_to_wait(request, verdict, retry))
            }
        }
    }

    fn turn_of(
        &self,
        described: &Described,
        verdict: &Verdict,
        after: Duration,
        patience: Duration,
    ) -> Result<Waiting<T, C>, NoTurn> {
        let kind = self.turns.kind(described, verdict);
        let bounds = crate::DelaySettings { wait_max: patience, ..self.delay };
        let deposit = described.ask(&self.domain, |request| self.engine.deposit(request, verdict));
        match self.turns.take(kind, after, &bounds) {
            Ok(turn) => Ok(Waiting { turn, deposit: Some(deposit) }),
            Err(no_turn) => {
                give_back(deposit);
                Err(no_turn)
            }
        }
    }

    fn refuse_to_wait(
        &self,
        request: &Parts,
        verdict: &mut Verdict,
        retry: Duration,
    ) -> Response<Bytes> {
        verdict.refuse_to_wait(retry.into());
        refuse(self, request, &Notice::of(verdict), self.engine.clock().now())
    }

    /// The line in which others wait whom this request must not overtake.
    pub(super) fn line_before(&self, described: &Described) -> Option<LineKey> {
        if self.wait_for_turn { self.lines.standing(described).map(|(line, _)| line) } else { None }
    }

    /// Asks a store that has to be waited for.
    pub(super) async fn decide(
        self: &Arc<Self>,
        request: &Parts,
        described: &Described,
    ) -> Settled {
        let ruled = {
            let (mut verdict, permit) = described.admit(&self.domain, &self.engine).await;
            self.rule_on(request, described, &mut verdict, permit, self.delay.wait_max)
        };
        self.settle(ruled, request, described).await
    }

    /// Waits for what a verdict came to.
    pub(super) async fn settle(
        self: &Arc<Self>,
        ruled: Ruled<T, C>,
        request: &Parts,
        described: &Described,
    ) -> Settled {
        match ruled {
            Ruled::Refused(answer) => Err(answer),
            Ruled::Passed(passage) => Ok(passage),
            Ruled::Turn(waiting, passage) => {
                waiting.come().await;
                Ok(passage)
            }
            Ruled::Over(line, wait, answer) => {
                self.stand(line, Some((wait, answer)), request, described).await
            }
        }
    }

    /// Stands in a line until a limit admits the request; `told` is what it was told before.
    pub(super) async fn stand(
        self: &Arc<Self>,
        line: LineKey,
        told: Option<(Duration, Response<Bytes>)>,
        request: &Parts,
        described: &Described,
    ) -> Settled {
        let began = Instant::now();
        let bounds = (&self.delay, self.delay.wait_max);
        let ask = || self.asked(request, described, began);
        match self.lines.stand((line, Later::Delay), bounds, told, ask).await {
            Ok((waiting, passage)) => {
                if let Some(waiting) = waiting {
                    waiting.come().await;
                }
                Ok(passage)
            }
            Err(Some(answer)) => Err(answer),
            Err(None) => Err(self.last_word(request, described).await),
        }
    }

    /// What the engine says now to the one in front of a line.
    async fn asked(
        &self,
        request: &Parts,
        described: &Described,
        began: Instant,
    ) -> Said<(Option<Box<Waiting<T, C>>>, Passage), Response<Bytes>> {
        let (mut verdict, permit) = described.admit(&self.domain, &self.engine).await;
        let patience = self.delay.wait_max.saturating_sub(began.elapsed());
        match self.rule_on(request, described, &mut verdict, permit, patience) {
            Ruled::Refused(answer) => Said::Refused(answer),
            Ruled::Passed(passage) => Said::Pass((None, passage)),
            Ruled::Turn(waiting, passage) => Said::Pass((Some(waiting), passage)),
            Ruled::Over(_, wait, answer) => Said::NotYet(wait, answer),
        }
    }

    /// The answer to a request that never asked, because there was no place in the line.
    async fn last_word(&self, request: &Parts, described: &Described) -> Response<Bytes> {
        let mut verdict = described.apply(Verb::Peek, &self.domain, &self.engine).await;
        if verdict.is_admitted() {
            // It would pass by now, but others are before it.
            return self.refuse_to_wait(request, &mut verdict, FULL_LINE_WAIT.into());
        }
        refuse(self, request, &Notice::of(&verdict), self.engine.clock().now())
    }
}
