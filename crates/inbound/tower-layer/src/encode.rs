//! The response to a refused request.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use tidegate_answers::{Negotiation, Refusal};

use super::settings::Settings;

impl<T, C> Settings<T, C> {
    /// The service's own response, or else the usual one.
    pub(super) fn refuse(&self, request: &Parts, refusal: Refusal) -> Response<Bytes> {
        let Some(answer) = &self.answer else {
            return self.renderer.render(refusal, &Negotiation::of(request));
        };
        let mut response = answer(request, &refusal);
        refusal.add_fields(response.headers_mut());
        for_method(response, &request.method)
    }
}

/// The response to HEAD has the length of the body and no body.
pub(super) fn for_method(mut response: Response<Bytes>, method: &Method) -> Response<Bytes> {
    if *method == Method::HEAD {
        let length = std::mem::take(response.body_mut()).len();
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
    response
}
