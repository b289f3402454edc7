//! The refund of a request that was charged by its limits and then not served.
//!
//! The caller's own limits come before the fleet's share and the gate, which hold slots. A request that is shed there
//! is not served, and must not have spent its caller's budget. Nearly all requests are served, and most are charged
//! their full cost by each limit; so nothing is stored for them, and a request that is shed is described, and its
//! rules matched, a second time.

use std::fmt;
use std::future::Future;
use std::task::{Context, Waker};

use tidegate_engine::{Clock, CounterStore, Deposit, Verdict};
use tokio::runtime::Handle;

use crate::description::RequestDescription;
use crate::domain_engine::DomainEngine;

/// Pays a deposit back; hides the store.
type PayBack = Box<dyn FnOnce() + Send + Sync>;

/// What a request gets back if it is not served.
#[derive(Default)]
pub struct Refund(Amount);

#[derive(Default)]
enum Amount {
    #[default]
    Nothing,
    /// The full cost, from each of the limits under the rules of this version.
    Full { rules_version: u64 },
    /// What the limits took, as each of them said.
    Deposit(PayBack),
}

impl Refund {
    /// Nothing to refund.
    pub const NOTHING: Refund = Refund(Amount::Nothing);

    /// The refund for a verdict that admits.
    pub fn of<S: CounterStore, C: Clock>(
        verdict: &Verdict,
        description: &RequestDescription,
        limits: DomainEngine<'_, S, C>,
    ) -> Self {
        if verdict.rulings().is_empty() {
            return Refund::NOTHING;
        }
        if verdict.is_charged_in_full() {
            return Refund(Amount::Full { rules_version: verdict.snapshot().version() });
        }
        Refund::of_deposit(limits.deposit(description, verdict))
    }

    /// The refund of a deposit.
    pub(crate) fn of_deposit<S: CounterStore, C: Clock>(deposit: Deposit<S, C>) -> Self {
        if deposit.is_empty() {
            return Refund::NOTHING;
        }
        Refund(Amount::Deposit(Box::new(|| pay_back(deposit))))
    }

    /// Pays it; `description` is that of the request.
    pub fn pay<S: CounterStore, C: Clock>(
        self,
        description: &RequestDescription,
        limits: DomainEngine<'_, S, C>,
    ) {
        match self.0 {
            Amount::Full { rules_version } => {
                pay_back(limits.deposit_in_full(description, rules_version));
            }
            Amount::Deposit(pay_back) => pay_back(),
            Amount::Nothing => {}
        }
    }

    /// Pays a refund that needs no description of the request.
    pub(crate) fn pay_deposit(self) {
        if let Amount::Deposit(pay_back) = self.0 {
            pay_back();
        }
    }

    /// Whether there is nothing to pay.
    pub const fn is_nothing(&self) -> bool {
        matches!(self.0, Amount::Nothing)
    }
}

impl fmt::Debug for Refund {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Amount::Nothing => "Refund(nothing)",
            Amount::Full { .. } => "Refund(full)",
            Amount::Deposit(_) => "Refund(deposit)",
        })
    }
}

/// Pays a deposit back: at once in the embedded store, on a task in another.
fn pay_back<S: CounterStore, C: Clock>(deposit: Deposit<S, C>) {
    // The request ran on a runtime. If that has ended, the charge stays.
    let Ok(runtime) = Handle::try_current() else { return };
    if deposit.is_empty() {
        return;
    }
    let mut paying = Box::pin(deposit.give_back());
    if paying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        runtime.spawn(paying);
    }
}
