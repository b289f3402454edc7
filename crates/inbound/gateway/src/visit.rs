//! The part of a request's way that never waits: from its head to a first decision.
//!
//! The order is that of what a refusal costs: what makes no sense, what nobody serves, what we
//! are too busy for, and then what its caller may not have. A request that is refused here puts
//! nothing on the heap that its answer does not need.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use tidegate_engine::{Clock, CounterStore, Nanos, Tenure, Timestamp};
use tidegate_overload::{Arrival, Category, Refusal, ScreenedRequest};

use super::access_log::{LogLine, Record};
use super::active_document::ActiveDocument;
use super::answers::{self, Answer, Asker, Cause, Fault, Retry};
use super::category::field_value;
use super::decide::{Asking, Judged, Over, Passage, Waits};
use super::describe::{Description, Identity, RequestView};
use super::forward::Hop;
use super::head::{HeadCheck, Target, examine};
use super::held::{HELD_PATH, HeldId, HeldState};
use super::refusal_samples::RefusedRequest;
use super::route::Route;
use super::tally::Outcome;
use tidegate_admission::HeldSlots;
use tidegate_admission::{Later, LineKey};
use tidegate_metrics::AnswerKind;

const SHED: HeaderName = HeaderName::from_static("x-tidegate-shed");
const SATURATED: HeaderName = HeaderName::from_static("x-tidegate-saturated");
const FLEET: HeaderValue = HeaderValue::from_static("fleet");

/// A request that goes on.
pub(super) struct Visit {
    pub(super) passport: Passport,
    pub(super) route: Arc<Route>,
    pub(super) target: Target,
    /// Whether the hop that it came from is trusted.
    pub(super) trusted: bool,
    /// Kept for requests that ask again, or are charged afterwards. In a box, as all that few
    /// requests have: a visit is moved some times.
    pub(super) description: Option<Box<Description>>,
    pub(super) stage: Stage,
    /// What protection said, if there is any.
    pub(super) screened: Option<(ScreenedRequest, Category)>,
}

/// What a request has with it wherever it goes: how to answer it, and where to note how it ended.
pub(super) struct Passport {
    pub(super) asker: Asker,
    /// The place of its route; one behind the last when it has none.
    pub(super) place: usize,
    pub(super) began: Timestamp,
    pub(super) client: Option<IpAddr>,
    pub(super) record: Option<Box<Record>>,
}

impl Passport {
    /// One for the same request when it is processed later; it is noted only once in the log.
    pub(super) fn for_later(&self) -> Self {
        Passport { asker: self.asker.clone(), record: None, ..*self }
    }

    /// Where its end is noted.
    pub(super) fn noted(self) -> (usize, Option<Box<Record>>) {
        (self.place, self.record)
    }
}

/// What is next.
pub(super) enum Stage {
    /// It may pass.
    Pass(Passage),
    /// It is over a limit, which does not refuse.
    Over(Box<Over>),
    /// Others wait in this line already.
    Join(LineKey, Later),
    /// The store has to be waited for.
    Ask,
}

impl<S, C> ActiveDocument<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Takes a request as far as it gets without waiting; an answer is as far as it gets.
    pub(super) fn visit(
        self: &Arc<Self>,
        hop: &Hop,
        head: &mut Parts,
        body_bytes: Option<u64>,
    ) -> ControlFlow<Answer, Visit> {
        let began = self.state.engine.clock().now();
        let client = self.hops.client(hop.address, &head.headers);
        let record = self.state.log.as_ref().and_then(|log| log.record(head, client, began));
        let mut passport =
            Passport { asker: Asker::of(head), place: self.routes.len(), began, client, record };
        let target = match examine(head, &self.settings.head, hop.host()) {
            Ok(HeadCheck::Sound(target)) => target,
            Ok(HeadCheck::Capabilities) => {
                let answer = answers::capabilities();
                return ControlFlow::Break(self.answered(passport, answer, Outcome::Own));
            }
            Err(fault) => return ControlFlow::Break(self.fault(passport, fault)),
        };
        if let Some(id) = head.uri.path().strip_prefix(HELD_PATH) {
            let answer = self.told_of_held(id, &passport.asker);
            return ControlFlow::Break(self.answered(passport, answer, Outcome::Own));
        }
        let found = self.routes.iter().enumerate().find(|(_, route)| route.matches(head, &target));
        let Some((place, route)) = found else {
            return ControlFlow::Break(self.fault(passport, Fault::NoRoute));
        };
        passport.place = place;
        let too_large = self.settings.head.body_bytes_max.zip(body_bytes);
        if too_large.is_some_and(|(most, bytes)| bytes > most) {
            return ControlFlow::Break(self.fault(passport, Fault::BodyTooLarge));
        }
        let known = Known { head, target: &target, client, hop, body_bytes };
        let trusted = self.hops.trusts(hop.address);
        let decided = self.decide_first(passport, route, &known, trusted)?;
        let (passport, description, stage, screened) = decided;
        let route = Arc::clone(route);
        ControlFlow::Continue(Visit {
            passport,
            route,
            target,
            trusted,
            description,
            stage,
            screened,
        })
    }

    fn decide_first(
        self: &Arc<Self>,
        passport: Passport,
        route: &Route,
        known: &Known<'_>,
        trusted: bool,
    ) -> ControlFlow<Answer, Decided> {
        if route.exempt {
            return ControlFlow::Continue((passport, None, Stage::Pass(Passage::free()), None));
        }
        let mut needs = route.describer.needs();
        if self.state.protection.is_some() {
            needs = needs | self.categories.needs();
        }
        let identity = self.identities.identify(needs, known.head, passport.began);
        let seen = known.seen(route, &identity);
        let screened = match self.screen(&seen, trusted) {
            Ok(screened) => screened,
            Err(refusal) => return ControlFlow::Break(self.shed(passport, &refusal)),
        };
        if route.describer.is_empty() {
            self.count(AnswerKind::Admitted, passport.began);
            return ControlFlow::Continue((passport, None, Stage::Pass(Passage::free()), screened));
        }
        let description = route.describer.describe(&seen);
        let stage = if description.described.is_empty() {
            Stage::Pass(Passage::free())
        } else if let Some((line, later)) = self.state.lines.standing(&description.described) {
            Stage::Join(line, later)
        } else {
            let domain = &self.settings.domain;
            let judged = self.state.engine.local().map(|engine| {
                let (mut verdict, permit) =
                    description.described.ask(domain, |ask| engine.admit_now(ask, Tenure::Held));
                let asking = Asking {
                    description: &description,
                    route,
                    asker: &passport.asker,
                    waits: Waits::Client(known.head),
                    since: None,
                };
                self.judge(&mut verdict, HeldSlots::of(permit), asking)
            });
            match judged {
                None => Stage::Ask,
                Some(Judged::Pass(passage)) => Stage::Pass(passage),
                Some(Judged::Over(over)) => Stage::Over(Box::new(over)),
                Some(Judged::Refused(answer, cause)) => {
                    return ControlFlow::Break(self.answered(
                        passport,
                        answer,
                        Outcome::Refused(cause),
                    ));
                }
            }
        };
        if let Stage::Pass(passage) = &stage {
            self.count(passage.answered, passport.began);
        }
        let done = matches!(stage, Stage::Pass(_)) && description.deferred.is_empty();
        let description = (!done).then(|| Box::new(description.into_owned()));
        ControlFlow::Continue((passport, description, stage, screened))
    }

    /// Describes a request again that was described before and did not wait.
    pub(super) fn describe(
        &self,
        passport: &Passport,
        route: &Route,
        known: &Known<'_>,
    ) -> Description {
        let needs = route.describer.needs();
        let identity = self.identities.identify(needs, known.head, passport.began);
        route.describer.describe(&known.seen(route, &identity)).into_owned()
    }

    /// Whether we can take one more of this kind.
    fn screen(
        &self,
        seen: &RequestView<'_>,
        trusted: bool,
    ) -> Result<Option<(ScreenedRequest, Category)>, Refusal> {
        let Some(protection) = &self.state.protection else { return Ok(None) };
        let (category, timeout) = self.categories.categorize(seen, trusted);
        let deadline = timeout.map(|timeout| protection.clock().now().after(Nanos::from(timeout)));
        let caller = self.categories.caller(seen);
        let screened = protection.screen(Arrival::Counted { category, caller, deadline })?;
        Ok(Some((screened, category)))
    }

    /// The answer to a request that we are too busy for.
    pub(super) fn shed(&self, passport: Passport, refusal: &Refusal) -> Answer {
        let cause = Cause::from(refusal.cause);
        let retry = Retry::After(refusal.retry_after.as_secs_ceil().max(1));
        let answers = self.answers_of(passport.place);
        let mut answer = answers.refused(cause, retry, &passport.asker);
        let headers = answer.headers_mut();
        if self.categories.names_shed() {
            headers.insert(SHED, field_value(refusal.category));
        }
        if refusal.fleet_saturated {
            headers.insert(SATURATED, FLEET);
        }
        self.answered(passport, answer, Outcome::Refused(cause))
    }

    /// The answer to a request that cannot be served.
    pub(super) fn fault(&self, passport: Passport, fault: Fault) -> Answer {
        let answer = self.answers_of(passport.place).fault(fault, &passport.asker);
        self.answered(passport, answer, Outcome::Fault(fault))
    }

    /// Takes note of an answer of our own.
    pub(super) fn answered(&self, passport: Passport, answer: Answer, outcome: Outcome) -> Answer {
        match outcome {
            Outcome::Refused(Cause::Undecided) => self.count(AnswerKind::Undecided, passport.began),
            Outcome::Refused(_) => self.count(AnswerKind::Refused, passport.began),
            Outcome::Fault(fault) if fault.status().is_client_error() => {
                self.count(AnswerKind::Invalid, passport.began);
            }
            Outcome::Fault(_) => self.count(AnswerKind::Failed, passport.began),
            Outcome::Served | Outcome::Kept | Outcome::Own | Outcome::Gone => {}
        }
        if let (Outcome::Refused(_), Some(samples)) = (outcome, &self.state.samples)
            && samples.is_due(passport.began)
        {
            let route = self.routes.get(passport.place).map(|route| route.name.clone());
            samples.add(RefusedRequest {
                at: passport.began,
                client: passport.client,
                route: route.unwrap_or_default(),
                code: outcome.code(),
            });
        }
        let bytes = http_body::Body::size_hint(answer.body()).exact().unwrap_or(0);
        self.note(passport.noted(), answer.status(), bytes, outcome);
        answer
    }

    /// Takes note of how a request ended, by its route and its record for the log.
    pub(super) fn note(
        &self,
        (place, record): (usize, Option<Box<Record>>),
        status: http::StatusCode,
        bytes: u64,
        outcome: Outcome,
    ) {
        if let Some(tally) = self.tallies.get(place) {
            tally.count(outcome);
        }
        if let (Some(log), Some(record)) = (&self.state.log, record) {
            let route = self.routes.get(place).map(|route| route.name.clone());
            log.write(LogLine {
                record,
                ended: self.state.engine.clock().now(),
                status,
                bytes,
                outcome: outcome.code(),
                route: route.unwrap_or_default(),
            });
        }
    }

    /// Counts a decision and how long it took.
    pub(super) fn count(&self, answered: AnswerKind, began: Timestamp) {
        let took = self.state.engine.clock().now().since(began);
        self.state.meter.count(answered, took.into());
    }

    pub(super) fn answers_of(&self, place: usize) -> &answers::AnswerSet {
        self.routes.get(place).map_or(&self.answers, |route| &route.answers)
    }

    /// The state of a held request.
    fn told_of_held(&self, id: &str, asker: &Asker) -> Answer {
        let state = HeldId::parse(id).and_then(|id| self.state.held.state(id));
        let body = match state {
            None => return self.answers.fault(Fault::NoRoute, asker),
            Some(HeldState::Waiting) => "{\"state\":\"waiting\"}".into(),
            Some(HeldState::Expired) => "{\"state\":\"expired\"}".into(),
            Some(HeldState::Done(status)) => {
                format!("{{\"state\":\"done\",\"status\":{}}}", status.as_u16()).into()
            }
        };
        answers::told(http::StatusCode::OK, body)
    }
}

type Decided = (Passport, Option<Box<Description>>, Stage, Option<(ScreenedRequest, Category)>);

/// What is known of a request before its route says more.
pub(super) struct Known<'r> {
    pub(super) head: &'r Parts,
    pub(super) target: &'r Target,
    pub(super) client: Option<IpAddr>,
    pub(super) hop: &'r Hop,
    pub(super) body_bytes: Option<u64>,
}

impl<'r> Known<'r> {
    fn seen(&self, route: &'r Route, identity: &'r Identity) -> RequestView<'r> {
        RequestView {
            head: self.head,
            target: self.target,
            client: self.client,
            hop: self.hop,
            route: &route.name,
            identity,
            body_bytes: self.body_bytes,
        }
    }
}
