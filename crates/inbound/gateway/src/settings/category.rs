//! Settings of who is shed first when we are short.

use http::Method;
use http::header::{HeaderName, HeaderValue};
use tidegate_overload::Category;

use super::describe::ValueFrom;

/// How requests are told apart when not all can be served.
#[derive(Clone, Debug)]
pub struct CategorySettings {
    /// The field in which a trusted hop names the category itself: `critical`, `post`, `get` or
    /// `test`. Upstreams are told in the same field. From anybody else it is dropped. Default:
    /// `X-Tidegate-Category`.
    pub field: Option<HeaderName>,
    /// Rules; the first that matches is taken. Without one, reading is `get` and everything
    /// else `post`.
    pub rules: Vec<CategoryRule>,
    /// Who is refused together: requests of the same caller share their fate for an hour.
    /// Default: the client's address, with 64 bits of IPv6.
    pub caller: ValueFrom,
    /// The field in which a client says for how many milliseconds it will wait. gRPC's own is
    /// always read. Default: none.
    pub timeout_field: Option<HeaderName>,
    /// Whether answers name the category that was shed, in `X-Tidegate-Shed`. Default: yes.
    pub tell: bool,
}

impl Default for CategorySettings {
    fn default() -> Self {
        CategorySettings {
            field: Some(HeaderName::from_static("x-tidegate-category")),
            rules: Vec::new(),
            caller: ValueFrom::Address { v4_bits: 32, v6_bits: 64 },
            timeout_field: None,
            tell: true,
        }
    }
}

/// What puts a request into a category. What is not said matches everything.
#[derive(Clone, Debug)]
pub struct CategoryRule {
    /// The category.
    pub category: Category,
    /// Names of routes.
    pub routes: Vec<String>,
    /// Methods.
    pub methods: Vec<Method>,
    /// A field and its value, as a trusted hop sends them.
    pub header: Option<(HeaderName, HeaderValue)>,
    /// Plans of API keys.
    pub plans: Vec<String>,
}

impl CategoryRule {
    /// Everything is of this category.
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
