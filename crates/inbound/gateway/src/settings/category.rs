//! Settings of load shedding: which requests are shed first.

use http::Method;
use http::header::{HeaderName, HeaderValue};
use tidegate_macros::defaults;
use tidegate_overload::Category;

use super::describe::ValueFrom;

defaults! {
    /// Which requests are shed first under overload.
    #[derive(Clone, Debug)]
    pub struct CategorySettings {
        /// The field in which a trusted proxy names the category: `critical`, `post`, `get` or `test`. Upstreams get
        /// the category in the same field; the value of an untrusted client is removed. Default: `X-Tidegate-Category`.
        pub field: Option<HeaderName> = Some(HeaderName::from_static("x-tidegate-category")),
        /// Rules; the first that matches is used. Without a match, `GET`, `HEAD` and `OPTIONS` are `get`, others
        /// `post`.
        pub rules: Vec<CategoryRule>,
        /// What identifies a caller. Requests of one caller are shed together, for an hour. Default: the client's
        /// address, with 64 bits of IPv6.
        pub caller: ValueFrom = ValueFrom::Address { v4_bits: 32, v6_bits: 64 },
        /// The field in which a client sends how many milliseconds it waits. `grpc-timeout` is always read. Default:
        /// none.
        pub timeout_field: Option<HeaderName>,
        /// Whether responses name the category that was shed, in `X-Tidegate-Shed`. Default: yes.
        pub tell: bool = true,
    }
}

/// A rule that puts requests into a category. An empty condition matches everything.
#[derive(Clone, Debug)]
pub struct CategoryRule {
    /// The category.
    pub category: Category,
    /// Names of routes.
    pub routes: Vec<String>,
    /// Methods.
    pub methods: Vec<Method>,
    /// A field and its value, as a trusted proxy sends them.
    pub header: Option<(HeaderName, HeaderValue)>,
    /// Plans of API keys.
    pub plans: Vec<String>,
}

impl CategoryRule {
    /// A rule that puts every request into this category.
    pub const fn new(category: Category) -> Self {
        CategoryRule {
            category,
            routes: Vec::new(),
            methods: Vec::new(),
            header: None,
            plans: Vec::new(),
        }
    }
}
