//! What a request is, to those who decide whether it can be served.

use std::time::Duration;

use http::Method;
use http::request::Parts;
use tidegate_engine::{Nanos, Timestamp};
use tidegate_overload::{Arrival, Caller, Category};

use tidegate_answers::grpc::timeout;

/// What a request is: who is shed first, who shares a fate, how long somebody waits for it.
///
/// ```
/// use http::Request;
/// use tidegate_tower_layer::Arriving;
/// use tidegate_overload::Category;
///
/// let (parts, ()) = Request::get("/items").body(()).unwrap().into_parts();
/// assert_eq!(Arriving::of(&parts).category(), Category::Get);
/// let paying = Arriving::new(Category::Critical).from_caller("tenant-7");
/// # drop(paying);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    category: Category,
    caller: Caller,
    timeout: Option<Duration>,
}

impl Arriving {
    /// A request of this category, of nobody in particular, with all the time there is.
    pub fn new(category: Category) -> Self {
        Arriving { category, caller: Caller::default(), timeout: None }
    }

    /// As the head of a request says: reading is `get`, everything else `post`, and a gRPC
    /// call has the time that its client gives it.
    pub fn of(request: &Parts) -> Self {
        let category = match request.method {
            Method::GET | Method::HEAD | Method::OPTIONS => Category::Get,
            _ => Category::Post,
        };
        Arriving { timeout: timeout::of(&request.headers), ..Arriving::new(category) }
    }

    /// The same request, of another category.
    #[must_use]
    pub const fn in_category(self, category: Category) -> Self {
        Arriving { category, ..self }
    }

    /// The same request, from this caller. Requests of one caller and category share their
    /// fate for an hour, so that whole sessions work or fail.
    #[must_use]
    pub fn from_caller(self, name: impl AsRef<[u8]>) -> Self {
        Arriving { caller: Caller::named(name), ..self }
    }

    /// The same request, whose client waits for so long and no longer.
    #[must_use]
    pub const fn within(self, timeout: Duration) -> Self {
        Arriving { timeout: Some(timeout), ..self }
    }

    /// Its category.
    pub const fn category(&self) -> Category {
        self.category
    }

    pub(super) fn at(self, now: Timestamp) -> Arrival {
        let deadline = self.timeout.map(|timeout| now.after(Nanos::from(timeout)));
        Arrival::Counted { category: self.category, caller: self.caller, deadline }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(request: http::request::Builder) -> Parts {
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn reading_goes_before_writing_when_somebody_has_to_go() {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let request = parts(Request::builder().method(method));
            assert_eq!(Arriving::of(&request).category(), Category::Get);
        }
        for method in ["POST", "PUT", "PATCH", "DELETE", "PURGE"] {
            let request = parts(Request::builder().method(method));
            assert_eq!(Arriving::of(&request).category(), Category::Post);
        }
    }

    #[test]
    fn a_calls_timeout_becomes_its_deadline() {
        let now = Timestamp::from_secs(100);
        let call = parts(Request::post("/").header("grpc-timeout", "250m"));
        let Arrival::Counted { deadline, .. } = Arriving::of(&call).at(now) else {
            panic!("it counts")
        };
        assert_eq!(deadline, Some(now.after(Nanos::from_millis(250))));
        let forever = Arriving::new(Category::Get).within(Duration::MAX).at(now);
        let Arrival::Counted { deadline, .. } = forever else { panic!("it counts") };
        assert_eq!(deadline, Some(Timestamp::MAX));
    }
}
