//! A defect of limiter code must not fail a request: its panics are contained, and the request is admitted.
//!
//! The engine contains its own panics and calls such a request undecided. Doors run limiter code around it: they describe
//! requests, render refusals, write header fields and record metrics. They run each of these [stages](LimiterStage) in
//! [`contain`], and go on as if there were no limiter when it returns nothing.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// A part of a door's limiter code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimiterStage {
    /// Finding out who asks for what.
    Describe,
    /// Asking limiters, and waiting for them.
    Decide,
    /// Turning a refusal or header fields into an answer.
    Render,
    /// Counting, logging, and giving back what a request held.
    Record,
}

impl LimiterStage {
    /// All of them.
    pub const ALL: [LimiterStage; 4] =
        [LimiterStage::Describe, LimiterStage::Decide, LimiterStage::Render, LimiterStage::Record];

    /// The value of the label `stage`.
    pub const fn as_str(self) -> &'static str {
        match self {
            LimiterStage::Describe => "describe",
            LimiterStage::Decide => "decide",
            LimiterStage::Render => "render",
            LimiterStage::Record => "record",
        }
    }
}

/// Panics by stage, over all doors of the process.
static PANICS: [AtomicU64; LimiterStage::ALL.len()] =
    [const { AtomicU64::new(0) }; LimiterStage::ALL.len()];

/// Runs limiter code. [`None`] when it panicked: then the request is admitted.
#[inline]
pub fn contain<T>(stage: LimiterStage, code: impl FnOnce() -> T) -> Option<T> {
    let code = AssertUnwindSafe(|| {
        fault_injection::strike(stage);
        code()
    });
    catch_unwind(code).map_err(|payload| report(stage, &*payload)).ok()
}

/// Like [`contain`], for code that waits.
pub async fn contain_future<T>(stage: LimiterStage, code: impl Future<Output = T>) -> Option<T> {
    let mut code = pin!(code);
    let polled =
        std::future::poll_fn(|context| match contain(stage, || code.as_mut().poll(context)) {
            Some(polled) => polled.map(Some),
            None => Poll::Ready(None),
        });
    polled.await
}

/// How often each stage panicked.
pub(crate) fn contained_panics() -> impl Iterator<Item = (&'static str, u64)> {
    LimiterStage::ALL
        .iter()
        .zip(&PANICS)
        .map(|(stage, count)| (stage.as_str(), count.load(Ordering::Relaxed)))
}

#[cold]
fn report(stage: LimiterStage, payload: &(dyn Any + Send)) {
    static FIRST: [Once; LimiterStage::ALL.len()] =
        [const { Once::new() }; LimiterStage::ALL.len()];
    let index = stage as usize;
    if let (Some(count), Some(first)) = (PANICS.get(index), FIRST.get(index)) {
        count.fetch_add(1, Ordering::Relaxed);
        // Once: a defect that every request meets would fill the log.
        first.call_once(|| {
            let text = panic_text(payload);
            tracing::error!(
                stage = stage.as_str(),
                panic = text,
                "limiter code panicked; its requests are admitted, and counted in tidegate_contained_panics_total"
            );
        });
    }
}

/// The message of a panic.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Panics that tests put into a stage. Without the feature `fault-injection` there are none.
pub mod fault_injection {
    use super::LimiterStage;

    #[cfg(feature = "fault-injection")]
    static ARMED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(usize::MAX);

    /// Lets every run of this stage panic, in the whole process; [`None`] ends it.
    #[cfg(feature = "fault-injection")]
    pub fn panic_in(stage: Option<LimiterStage>) {
        let index = stage.map_or(usize::MAX, |stage| stage as usize);
        ARMED.store(index, std::sync::atomic::Ordering::SeqCst);
    }

    #[cfg(feature = "fault-injection")]
    pub(super) fn strike(stage: LimiterStage) {
        let armed = ARMED.load(std::sync::atomic::Ordering::SeqCst);
        assert!(armed != stage as usize, "a panic injected into {}", stage.as_str());
    }

    #[cfg(not(feature = "fault-injection"))]
    #[inline]
    pub(super) const fn strike(_: LimiterStage) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_gives_nothing_and_is_counted() {
        let count = || {
            contained_panics().find(|(stage, _)| *stage == "render").map_or(0, |(_, count)| count)
        };
        let before = count();
        assert_eq!(contain(LimiterStage::Render, || 7), Some(7));
        assert_eq!(contain(LimiterStage::Render, || -> u32 { panic!("on purpose") }), None);
        assert!(count() > before);
    }

    #[tokio::test]
    async fn a_panic_of_a_future_gives_nothing() {
        let pending = async {
            tokio::task::yield_now().await;
            panic!("on purpose")
        };
        assert_eq!(contain_future::<u32>(LimiterStage::Decide, pending).await, None);
        assert_eq!(contain_future(LimiterStage::Decide, async { 7 }).await, Some(7));
    }
}
