//! What overload protection has to know of a request.

use std::time::Duration;

use http::Method;
use http::request::Parts;
use tidegate_engine::{Nanos, Timestamp};
use tidegate_overload::{Arrival, Caller, Category};

use tidegate_answers::grpc::timeout;

/// What overload protection has to know of a request: its category, its caller, and how long its client waits.
///
/// ```
/// use http::Request;
/// use tidegate_tower_layer::ArrivingRequest;
/// use tidegate_overload::Category;
///
/// let (parts, ()) = Request::get("/items").body(()).unwrap().into_parts();
/// assert_eq!(ArrivingRequest::of(&parts).category(), Category::Get);
/// let paying = ArrivingRequest::new(Category::Critical).from_caller("tenant-7");
/// # drop(paying);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivingRequest {
    category: Category,
    caller: Caller,
    timeout: Option<Duration>,
}

impl ArrivingRequest {
    /// A request of this category, of an unknown caller, without a deadline.
    pub fn new(category: Category) -> Self {
        ArrivingRequest { category, caller: Caller::default(), timeout: None }
    }

    /// From the head of a request: reading is `get`, everything else `post`, and a gRPC call has its client's timeout.
    pub fn of(request: &Parts) -> Self {
        let category = match request.method {
            Method::GET | Method::HEAD | Method::OPTIONS => Category::Get,
            _ => Category::Post,
        };
        ArrivingRequest { timeout: timeout::of(&request.headers), ..ArrivingRequest::new(category) }
    }

    /// The same request, of another category.
    #[must_use]
    pub const fn in_category(self, category: Category) -> Self {
        ArrivingRequest { category, ..self }
    }

    /// The same request, from this caller. Requests of one caller and category are shed or served alike for an hour, so
    /// that whole sessions work or fail.
    #[must_use]
    pub fn from_caller(self, name: impl AsRef<[u8]>) -> Self {
        ArrivingRequest { caller: Caller::named(name), ..self }
    }

    /// The same request, whose client waits no longer than this.
    #[must_use]
    pub const fn within(self, timeout: Duration) -> Self {
        ArrivingRequest { timeout: Some(timeout), ..self }
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
    fn reading_is_shed_before_writing() {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let request = parts(Request::builder().method(method));
            assert_eq!(ArrivingRequest::of(&request).category(), Category::Get);
        }
        for method in ["POST", "PUT", "PATCH", "DELETE", "PURGE"] {
            let request = parts(Request::builder().method(method));
            assert_eq!(ArrivingRequest::of(&request).category(), Category::Post);
        }
    }

    #[test]
    fn a_calls_timeout_becomes_its_deadline() {
        let now = Timestamp::from_secs(100);
        let call = parts(Request::post("/").header("grpc-timeout", "250m"));
        let Arrival::Counted { deadline, .. } = ArrivingRequest::of(&call).at(now) else {
            panic!("it counts")
        };
        assert_eq!(deadline, Some(now.after(Nanos::from_millis(250))));
        let forever = ArrivingRequest::new(Category::Get).within(Duration::MAX).at(now);
        let Arrival::Counted { deadline, .. } = forever else { panic!("it counts") };
        assert_eq!(deadline, Some(Timestamp::MAX));
    }
}
