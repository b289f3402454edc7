//! Declarations in short form, for impls that the compiler's derives cannot write.
//!
//! [`defaults!`] declares a struct with the default of each field beside it. [`debug_fields!`] implements `Debug` for a
//! type of which only some fields can or should be shown. [`clone_fields!`] implements `Clone` for a handle whose type
//! parameters are not `Clone`.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tidegate_macros::{clone_fields, debug_fields, defaults};
//!
//! defaults! {
//!     /// How long and how often to try.
//!     #[derive(Clone, Debug, PartialEq, Eq)]
//!     pub struct Retries {
//!         /// The maximum of attempts.
//!         pub attempts_max: u32 = 3,
//!         /// The servers to try.
//!         pub servers: Vec<String>,
//!     }
//! }
//! assert_eq!(Retries::default(), Retries { attempts_max: 3, servers: Vec::new() });
//!
//! struct Shared<S> {
//!     retries: Retries,
//!     store: S,
//! }
//!
//! struct Client<S> {
//!     shared: Arc<Shared<S>>,
//! }
//!
//! clone_fields!([S] Client<S> { shared });
//! debug_fields!([S] Client<S> { attempts_max = shared.retries.attempts_max });
//!
//! let shared = Arc::new(Shared { retries: Retries::default(), store: |_: u8| {} });
//! (shared.store)(1);
//! assert_eq!(format!("{:?}", Client { shared }.clone()), "Client { attempts_max: 3, .. }");
//! ```

/// Declares a struct and implements `Default` for it. A field without a value has the default of its type.
#[macro_export]
macro_rules! defaults {
    (
        $(#[$about:meta])*
        $visibility:vis struct $name:ident {
            $(
                $(#[$field_about:meta])*
                $field_visibility:vis $field:ident: $type:ty $(= $default:expr)?,
            )+
        }
    ) => {
        $(#[$about])*
        $visibility struct $name {
            $($(#[$field_about])* $field_visibility $field: $type,)+
        }

        impl ::core::default::Default for $name {
            fn default() -> Self {
                $name { $($field: $crate::defaults!(@value $($default)?),)+ }
            }
        }
    };
    (@value) => { ::core::default::Default::default() };
    (@value $default:expr) => { $default };
}

/// Implements `Debug`: parameters of the impl in brackets, the type, and the fields to show. A field of a field is
/// written with a name, such as `{ domain = shared.settings.domain }`.
#[macro_export]
macro_rules! debug_fields {
    (
        $([$($parameters:tt)*])? $name:ident $(<$($argument:tt),+>)?
        { $($field:ident $(= $($part:ident).+)?),* $(,)? }
    ) => {
        impl $(<$($parameters)*>)? ::core::fmt::Debug for $name $(<$($argument),+>)? {
            fn fmt(&self, out: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                out.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &$crate::debug_fields!(@value self $field $($($part).+)?)))*
                    .finish_non_exhaustive()
            }
        }
    };
    (@value $it:ident $field:ident) => { $it.$field };
    (@value $it:ident $field:ident $($part:ident).+) => { $it.$($part).+ };
}

/// Implements `Clone` field by field: parameters of the impl in brackets, the type, and all its fields.
#[macro_export]
macro_rules! clone_fields {
    ([$($parameters:tt)*] $name:ident<$($argument:tt),+> { $($field:ident),+ $(,)? }) => {
        impl<$($parameters)*> ::core::clone::Clone for $name<$($argument),+> {
            fn clone(&self) -> Self {
                $name { $($field: ::core::clone::Clone::clone(&self.$field),)+ }
            }
        }
    };
}
