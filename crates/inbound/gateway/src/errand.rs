//! The part of a request's way that waits: for a limit, for the gate, for its upstream.

mod stay;
mod wait;

use std::error::Error as StdError;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tidegate_engine::{Clock, CounterStore};
use tidegate_overload::{Category, Entry, Pass, Refusal, ScreenedRequest, SteadyClock};
use tokio::time::{Instant, sleep_until};

use super::active_document::ActiveDocument;
use super::answers::{self, Answer, Cause, Fault};
use super::body::{Ending, Fate, GatewayBody, Progress, RequestBody};
use super::decide::{Asking, Judged, Over, Passage, Waits};
use super::describe::Description;
use super::forward::{Hop, ProvenanceContext, UpstreamRequest, remove_hop_by_hop, tunnel};
use super::held::{HELD_PATH, HeldId, HeldRequest, HeldState};
use super::route::Route;
use super::tally::Outcome;
use super::upstream::{SendError, SendOptions};
use super::visit::{Known, Passport, Stage, Visit};
use stay::Stay;
use tidegate_admission::Charged;
use tidegate_admission::Waiting;
use tidegate_admission::{Later, LineKey};
use wait::Wait;

/// What logs show of a request whose client was gone, as other servers have it.
const CLIENT_GONE: u16 = 499;

/// A request on its way. In a box from its beginning: futures move what they are given, and
/// then hold it twice.
pub(super) struct Trip {
    pub(super) hop: Arc<Hop>,
    pub(super) visit: Visit,
    pub(super) head: Parts,
    pub(super) body: RequestBody,
    pub(super) progress: Option<Arc<Progress>>,
}

/// What a request that is in holds there, and the category that it came in by.
type Entered = (Option<Pass<SteadyClock>>, Option<Category>);

/// What a decision gave a request.
enum Gone {
    On(Passage),
    /// It is kept for later, behind those in this line.
    Later(LineKey, Option<Box<Over>>),
}

impl<S, C> ActiveDocument<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Takes a request to its answer.
    pub(super) async fn run(self: Arc<Self>, mut trip: Box<Trip>) -> Answer {
        // What seldom happens is in a box: every request would carry its size.
        let decided = match std::mem::replace(&mut trip.visit.stage, Stage::Ask) {
            Stage::Pass(passage) => Ok(Gone::On(passage)),
            stage => Box::pin(self.decide(stage, &mut trip)).await,
        };
        match decided {
            Ok(Gone::On(passage)) => self.pass(trip, passage).await,
            Ok(Gone::Later(line, over)) => Box::pin(self.keep(trip, line, over)).await,
            Err((answer, cause)) => {
                self.answered(trip.visit.passport, answer, Outcome::Refused(cause))
            }
        }
    }

    /// Waits until it is decided whether the request may pass, or its client is gone.
    async fn decide(&self, stage: Stage, trip: &mut Trip) -> Result<Gone, (Answer, Cause)> {
        let Trip { visit, head, .. } = trip;
        let wait = Wait::begin(self, &mut visit.passport);
        let decided = self.decided(stage, visit, head).await;
        wait.end(&mut visit.passport);
        decided
    }

    async fn decided(
        &self,
        stage: Stage,
        visit: &Visit,
        head: &Parts,
    ) -> Result<Gone, (Answer, Cause)> {
        let (description, stage) = match (&visit.description, stage) {
            (_, Stage::Pass(passage)) => return Ok(Gone::On(passage)),
            // Only what is described can be anything else.
            (None, _) => return Ok(Gone::On(Passage::free())),
            (Some(description), stage) => (description, stage),
        };
        let asking = asking(visit, description, Waits::Client(head));
        let stage = match stage {
            Stage::Ask => {
                let (mut verdict, held) = self.ask(description).await;
                match self.judge(&mut verdict, held, asking) {
                    Judged::Pass(passage) => Stage::Pass(passage),
                    Judged::Over(over) => Stage::Over(Box::new(over)),
                    Judged::Refused(answer, cause) => return Err((answer, cause)),
                }
            }
            stage => stage,
        };
        let passage = match stage {
            Stage::Pass(passage) => passage,
            Stage::Over(over) if over.later == Later::Queue => {
                return Ok(Gone::Later(over.line, Some(over)));
            }
            Stage::Join(line, Later::Queue) => return Ok(Gone::Later(line, None)),
            Stage::Over(over) => {
                let line = (over.line, Later::Delay);
                self.stand_in_line(Some(*over), line, asking).await?
            }
            Stage::Join(line, later) => self.stand_in_line(None, (line, later), asking).await?,
            Stage::Ask => Passage::free(),
        };
        self.count(passage.answered, visit.passport.began);
        Ok(Gone::On(passage))
    }

    /// Keeps a request for later, and says where its state is told.
    async fn keep(
        self: Arc<Self>,
        trip: Box<Trip>,
        line: LineKey,
        over: Option<Box<Over>>,
    ) -> Answer {
        let Trip { hop, visit, head, body, progress } = *trip;
        let limited = Limited::new(body, self.settings.queue.body_bytes_max);
        let Ok(whole) = limited.collect().await else {
            let fate = progress.map(|progress| progress.fate());
            let fault = fate.map_or(Fault::BodyTooLarge, fault_of_body);
            return self.fault(visit.passport, fault);
        };
        let request = HeldRequest { head, body: whole.to_bytes() };
        let Ok(id) = self.state.held.hold(request) else {
            let Some(description) = &visit.description else {
                return self.fault(visit.passport, Fault::BodyTooLarge);
            };
            let asking = asking(&visit, description, Waits::Nobody);
            let (answer, cause) = self.last_word(over.map(|over| *over), asking).await;
            return self.answered(visit.passport, answer, Outcome::Refused(cause));
        };
        let answer = answers::kept(&format!("{HELD_PATH}{id}"));
        let passport = visit.passport.for_later();
        let told = self.answered(visit.passport, answer, Outcome::Kept);
        // Its client has been answered, and does not wait.
        let screened =
            visit.screened.map(|(screened, category)| (screened.without_deadline(), category));
        let visit = Visit { passport, screened, ..visit };
        tokio::spawn(Arc::clone(&self).process(hop, visit, (line, over), id));
        told
    }

    /// Processes a held request when its limit admits it.
    async fn process(
        self: Arc<Self>,
        hop: Arc<Hop>,
        mut visit: Visit,
        (line, over): (LineKey, Option<Box<Over>>),
        id: HeldId,
    ) {
        let end = Instant::now().checked_add(self.settings.queue.wait_max);
        let mut passage = match &visit.description {
            None => Ok(Passage::free()),
            Some(description) => {
                let asking = asking(&visit, description, Waits::Nobody);
                let over = over.map(|over| *over);
                self.stand_in_line(over, (line, Later::Queue), asking).await
            }
        };
        // It stays where it is kept until its turn has come.
        if let Ok(passage) = &mut passage
            && let Some(turn) = passage.turn.take()
        {
            passage.charged = turn.come().await;
        }
        let entered = match &passage {
            Ok(_) => Some(self.enter_in_time(&mut visit, end).await),
            Err(_) => None,
        };
        let (Ok(passage), Some(entered), Some(request)) =
            (passage, entered, self.state.held.take(id))
        else {
            self.state.held.settle(id, HeldState::Expired);
            return;
        };
        let HeldRequest { head, body } = request;
        let body = RequestBody::whole(body);
        let trip = Box::new(Trip { hop, visit, head, body, progress: None });
        let answer = self.go(trip, passage, entered).await;
        self.state.held.settle(id, HeldState::Done(answer.status()));
        // Read to its end, so that the upstream is not cut off.
        let mut body = answer.into_body();
        while let Some(Ok(_)) = body.frame().await {}
    }

    /// Passes a request on that its limits admit: after its turn, and through the gate.
    async fn pass(self: &Arc<Self>, mut trip: Box<Trip>, mut passage: Passage) -> Answer {
        if let Some(turn) = passage.turn.take() {
            passage.charged = Box::pin(self.wait_for(turn, &mut trip.visit.passport)).await;
        }
        let entered = self.enter(trip.visit.screened, &mut trip.visit.passport).await;
        self.go(trip, passage, entered).await
    }

    /// On to the upstream, if there is a place.
    async fn go(
        self: &Arc<Self>,
        trip: Box<Trip>,
        passage: Passage,
        entered: Result<Entered, Refusal>,
    ) -> Answer {
        match entered {
            Ok((pass, category)) => self.travel(trip, passage, pass, category).await,
            Err(refusal) => {
                self.give_back(&trip, passage.charged);
                self.shed(trip.visit.passport, &refusal)
            }
        }
    }

    /// Waits until a request's turn has come, or its client is gone.
    async fn wait_for(&self, turn: Box<Waiting>, passport: &mut Passport) -> Charged {
        let wait = Wait::begin(self, passport);
        let charged = turn.come().await;
        wait.end(passport);
        charged
    }

    /// Gives back what a request was charged for which there is no place.
    #[cold]
    fn give_back(&self, trip: &Trip, charged: Charged) {
        if charged.is_nothing() {
            return;
        }
        let asked = (&self.state.engine, &*self.settings.domain);
        let Trip { hop, visit, head, body, .. } = trip;
        match &visit.description {
            Some(description) => charged.give_back(&description.described, asked),
            // Not kept for the many that are served.
            None => {
                let known = Known {
                    head,
                    target: &visit.target,
                    client: visit.passport.client,
                    hop,
                    body_bytes: body.size_hint().exact(),
                };
                let described = self.describe(&visit.passport, &visit.route, &known).described;
                charged.give_back(&described, asked);
            }
        }
    }

    /// To the upstream and back.
    async fn travel(
        self: &Arc<Self>,
        mut trip: Box<Trip>,
        passage: Passage,
        pass: Option<Pass<SteadyClock>>,
        category: Option<Category>,
    ) -> Answer {
        match category {
            Some(category) => self.categories.set_field(&mut trip.head.headers, category),
            None => {
                self.categories.remove_untrusted_field(&mut trip.head.headers, trip.visit.trusted)
            }
        }
        let body = std::mem::replace(&mut trip.body, RequestBody::empty());
        let Visit { target, route, trusted, .. } = &trip.visit;
        let from =
            ProvenanceContext { provenance: &self.provenance, hop: &trip.hop, trusted: *trusted };
        let mut outgoing = UpstreamRequest::prepare(&mut trip.head, body, target, route, from);
        let Trip { visit: Visit { passport, route, description, .. }, progress, .. } = *trip;
        let timeouts = &route.timeouts;
        let end = timeouts.total.and_then(|total| Instant::now().checked_add(total));
        let errand = SendOptions { timeouts, end, progress: progress.as_ref() };
        let mut stay = Box::new(Stay::begin(self, passport, passage.held, pass));
        stay.owe(description, progress.clone());
        let Some(group) = self.upstreams.get(route.upstream_group) else {
            return stay.fault(Fault::UpstreamUnreachable);
        };
        let UpstreamRequest { exchange, adapter, upgrade } = &mut outgoing;
        if let Err(error) = group.send(exchange, &errand, adapter).await {
            tracing::debug!(route = &*route.name, error = &error as &dyn StdError, "failed");
            return stay.fault(fault_of(&error));
        }
        let Some((mut answer, lease)) = exchange.answered.take() else {
            return stay.fault(Fault::UpstreamBroken);
        };
        stay.charge_as_told(answer.headers_mut());
        stay.answers(answer.status(), lease);
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return upgraded(stay, answer, upgrade.take(), &route);
        }
        remove_hop_by_hop(answer.headers_mut());
        route.response_edits.apply(answer.headers_mut());
        passage.fields.add_to(answer.headers_mut());
        *answer.version_mut() = Version::HTTP_11;
        let ending = Ending::new(stay);
        answer.map(|body| GatewayBody::of_upstream(body, timeouts.idle, end, ending))
    }

    /// Through the gate with a request that is kept. Nobody comes back for it, so it is tried
    /// again, as a client would.
    async fn enter_in_time(
        &self,
        visit: &mut Visit,
        end: Option<Instant>,
    ) -> Result<Entered, Refusal> {
        loop {
            let refusal = match self.enter(visit.screened, &mut visit.passport).await {
                Ok(entered) => return Ok(entered),
                Err(refusal) => refusal,
            };
            let again = Instant::now().checked_add(refusal.retry_after.into());
            match again.filter(|again| Some(*again) <= end) {
                Some(again) => sleep_until(again).await,
                None => return Err(refusal),
            }
        }
    }

    /// Through the gate, if there is one.
    async fn enter(
        &self,
        screened: Option<(ScreenedRequest, Category)>,
        passport: &mut Passport,
    ) -> Result<Entered, Refusal> {
        let (Some(protection), Some((screened, category))) = (&self.state.protection, screened)
        else {
            return Ok((None, None));
        };
        let pass = match protection.try_enter(screened) {
            Entry::Entered(pass) => pass,
            Entry::Refused(refusal) => return Err(refusal),
            Entry::Queued(queued) => {
                let wait = Wait::begin(self, passport);
                let entered = queued.wait().await;
                wait.end(passport);
                entered?
            }
        };
        Ok((Some(pass), Some(category)))
    }
}

/// What it takes to ask the engine for a request from here on.
fn asking<'r>(visit: &'r Visit, description: &'r Description, waits: Waits<'r>) -> Asking<'r> {
    let (route, asker) = (&*visit.route, &visit.passport.asker);
    Asking { description, route, asker, waits, since: Some(Instant::now()) }
}

/// Both sides want another protocol: their bytes are carried from here on.
fn upgraded<S, C>(
    stay: Box<Stay<S, C>>,
    answer: Response<Incoming>,
    client: Option<OnUpgrade>,
    route: &Route,
) -> Answer
where
    S: CounterStore,
    C: Clock,
{
    // An upstream that switches though nobody asked it to is broken.
    let Some(client) = client else { return stay.fault(Fault::UpstreamBroken) };
    let (mut head, body) = answer.into_parts();
    let Some(upstream) = head.extensions.remove::<OnUpgrade>() else {
        return stay.fault(Fault::UpstreamBroken);
    };
    drop(body);
    let protocol = head.headers.get(UPGRADE).cloned();
    remove_hop_by_hop(&mut head.headers);
    route.response_edits.apply(&mut head.headers);
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        head.headers.insert(UPGRADE, protocol);
    }
    stay.begins_tunnel();
    tunnel(client, upstream, route.timeouts.idle, stay);
    Response::from_parts(head, GatewayBody::own(Bytes::new()))
}

fn fault_of(error: &SendError) -> Fault {
    match error {
        SendError::Connect(_) => Fault::UpstreamUnreachable,
        SendError::Broken(_) => Fault::UpstreamBroken,
        SendError::Timeout => Fault::UpstreamTimeout,
        SendError::Body(fate) => fault_of_body(*fate),
    }
}

const fn fault_of_body(fate: Fate) -> Fault {
    match fate {
        Fate::TooSlow => Fault::BodyTooSlow,
        Fate::Broken => Fault::BodyBroken,
        Fate::TooLarge | Fate::Coming | Fate::Ended => Fault::BodyTooLarge,
    }
}
