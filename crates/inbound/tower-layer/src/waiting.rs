//! What a verdict comes to, and waiting for what it comes to.
//!
//! A request waits in two ways. Over a limit with `when_over: delay` it stands in line, has been
//! charged nothing, and asks again when it is in front. A leaky bucket admits it for later: it has
//! been charged, and waits for its turn. Whoever goes away gives up its place, and what it was
//! charged. Lines and turns are those of the gateway (`line`, `turns`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tidegate_engine::{Clock, CounterStore, Nanos, Permit, Retry, Verb, Verdict};
use tokio::time::Instant;

use super::answer::refuse;
use super::body::Held;
use super::future::{Passage, Settled};
use super::receipt::Receipt;
use super::settings::Settings;
use tidegate_admission::Charged;
use tidegate_admission::Described;
use tidegate_admission::{Later, LineKey, Said};
use tidegate_admission::{NoTurn, Patience, Waiting};
use tidegate_answers::Notice;
use tidegate_answers::{Fields, HeadersOn};

/// After how long to ask again when a line is full that would let others pass.
const FULL_LINE_WAIT: Nanos = Nanos::from_secs(1);

/// What a verdict comes to.
pub(super) enum Ruled {
    Refused(Response<Bytes>),
    /// It passes, and was charged this.
    Passed(Passage, Charged),
    /// It passes when its turn has come.
    Turn(Box<Waiting>, Passage),
    /// It waits in line, and may ask again after this long. The answer is for when nothing comes
    /// of it.
    Over(LineKey, Duration, Response<Bytes>),
}

/// What the one in front of a line was charged.
enum Paid {
    Now(Charged),
    /// It passes when its turn has come.
    ForLater(Box<Waiting>),
}

impl<T, C> Settings<T, C>
where
    T: CounterStore,
    C: Clock,
{
    /// What a verdict comes to for a request that waits no longer than `patience`.
    pub(super) fn rule_on(
        &self,
        request: &Parts,
        described: &Described,
        verdict: &mut Verdict,
        permit: Permit<T, C>,
        patience: Duration,
    ) -> Ruled {
        if !verdict.is_admitted() {
            let notice = Notice::of(verdict);
            let answer = refuse(self, request, &notice, self.engine.clock().now());
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
            HeadersOn::Always => self.headers.fields_of(verdict, || self.engine.clock().now()),
            HeadersOn::Refusal => Fields::default(),
        };
        if verdict.delay() == Nanos::ZERO || !self.wait_for_turn {
            let charged = Charged::by(verdict, described, (&self.engine, &*self.domain));
            return Ruled::Passed(Passage::new(Held::new(permit), fields), charged);
        }
        let in_line = self.lines.waiting();
        let patience = Patience::new(Later::Delay, patience, &self.delay, in_line);
        let asked = (&self.engine, &*self.domain);
        match self.turns.take(described, verdict, asked, patience) {
            Ok(waiting) => Ruled::Turn(Box::new(waiting), Passage::new(Held::new(permit), fields)),
            Err(NoTurn(retry)) => {
                drop(permit);
                described.ask(&self.domain, |asked| {
                    self.engine.turn_away(asked, verdict, retry.into());
                });
                Ruled::Refused(self.refuse(request, verdict))
            }
        }
    }

    fn refuse(&self, request: &Parts, verdict: &Verdict) -> Response<Bytes> {
        refuse(self, request, &Notice::of(verdict), self.engine.clock().now())
    }

    /// The line in which others wait whom this request must not overtake.
    pub(super) fn line_before(&self, described: &Described) -> Option<LineKey> {
        if self.wait_for_turn { self.lines.standing(described).map(|(line, _)| line) } else { None }
    }

    /// Asks a store that has to be waited for.
    pub(super) async fn decide(self: &Arc<Self>, request: &Parts, described: Described) -> Settled {
        let ruled = {
            let (mut verdict, permit) = described.admit(&self.domain, &self.engine).await;
            self.rule_on(request, &described, &mut verdict, permit, self.delay.wait_max)
        };
        self.settle(ruled, request, described).await
    }

    /// Waits for what a verdict came to.
    pub(super) async fn settle(
        self: &Arc<Self>,
        ruled: Ruled,
        request: &Parts,
        described: Described,
    ) -> Settled {
        match ruled {
            Ruled::Refused(answer) => Err(answer),
            Ruled::Passed(passage, charged) => {
                Ok(passage.with_receipt(Receipt::of(self, described, charged)))
            }
            Ruled::Turn(waiting, passage) => {
                let charged = waiting.come().await;
                Ok(passage.with_receipt(Receipt::of(self, described, charged)))
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
        described: Described,
    ) -> Settled {
        let began = Instant::now();
        let bounds = self.delay.beside(self.turns.waiting());
        let bounds = (&bounds, self.delay.wait_max);
        let ask = || self.asked(request, &described, began);
        match self.lines.stand((line, Later::Delay), bounds, told, ask).await {
            Ok((charged, passage)) => {
                let charged = match charged {
                    Paid::Now(charged) => charged,
                    Paid::ForLater(waiting) => waiting.come().await,
                };
                Ok(passage.with_receipt(Receipt::of(self, described, charged)))
            }
            Err(Some(answer)) => Err(answer),
            Err(None) => Err(self.last_word(request, &described).await),
        }
    }

    /// What the engine says now to the one in front of a line.
    async fn asked(
        &self,
        request: &Parts,
        described: &Described,
        began: Instant,
    ) -> Said<(Paid, Passage), Response<Bytes>> {
        let (mut verdict, permit) = described.admit(&self.domain, &self.engine).await;
        let patience = self.delay.wait_max.saturating_sub(began.elapsed());
        match self.rule_on(request, described, &mut verdict, permit, patience) {
            Ruled::Refused(answer) => Said::Refused(answer),
            Ruled::Passed(passage, charged) => Said::Pass((Paid::Now(charged), passage)),
            Ruled::Turn(waiting, passage) => Said::Pass((Paid::ForLater(waiting), passage)),
            Ruled::Over(_, wait, answer) => Said::NotYet(wait, answer),
        }
    }

    /// The answer to a request that never asked, because there was no place in the line.
    async fn last_word(&self, request: &Parts, described: &Described) -> Response<Bytes> {
        let mut verdict = described.apply(Verb::Peek, &self.domain, &self.engine).await;
        if verdict.is_admitted() {
            // It would pass by now, but others are before it.
            verdict.refuse_to_wait(FULL_LINE_WAIT);
        }
        self.refuse(request, &verdict)
    }
}
