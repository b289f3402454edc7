//! The response to a request that an overloaded service refuses.

use std::sync::LazyLock;

use bytes::Bytes;
use http::Response;
use http::header::CACHE_CONTROL;
use http::request::Parts;
use tidegate_answers::{NO_STORE, Negotiation, Renderer};
use tidegate_overload::Refusal;

use super::settings::Settings;
use crate::encode::for_method;
use crate::refund::UnservedRequest;

/// One for the process: no refusal under overload depends on rules.
static RENDERER: LazyLock<Renderer> = LazyLock::new(Renderer::default);

impl<C> Settings<C> {
    /// The service's own response, or else the usual one. Limits outside of this layer refund what they charged.
    pub(super) fn refuse(&self, request: &Parts, refusal: &Refusal) -> Response<Bytes> {
        let plain = tidegate_answers::Refusal::of_overload(refusal, true);
        let mut response = match &self.answer {
            None => RENDERER.render(plain, &Negotiation::of(request)),
            Some(answer) => {
                let mut response = answer(request, refusal);
                plain.add_fields(response.headers_mut());
                response.headers_mut().entry(CACHE_CONTROL).or_insert(NO_STORE);
                for_method(response, &request.method)
            }
        };
        response.extensions_mut().insert(UnservedRequest);
        response
    }
}
