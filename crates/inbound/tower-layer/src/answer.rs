//! The answer for a refused request.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use tidegate_engine::Timestamp;

use super::settings::Settings;
use tidegate_answers::Notice;
use tidegate_answers::grpc::{grpc_answer, is_grpc};
use tidegate_answers::problem_answer;

/// The refusal in the words of whoever asks, with the rate limit fields.
pub(super) fn refuse<T, C>(
    settings: &Settings<T, C>,
    request: &Parts,
    notice: &Notice<'_>,
    now: Timestamp,
) -> Response<Bytes> {
    let mut answer = match &settings.answer {
        Some(answer) => answer(request, notice),
        None if is_grpc(&request.headers) => grpc_answer(notice, request.headers.get(CONTENT_TYPE)),
        None => problem_answer(notice),
    };
    settings.headers.fields(notice, now).add_to(answer.headers_mut());
    if request.method == Method::HEAD { without_body(answer) } else { answer }
}

/// The same answer without its body, whose length it still tells.
pub(super) fn without_body(mut answer: Response<Bytes>) -> Response<Bytes> {
    let length = std::mem::take(answer.body_mut()).len();
    answer.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    answer
}
