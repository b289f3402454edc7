//! Limitador's library behind a tonic server.
//!
//! It stands in for `limitador-server`, which the registry does not have. It
//! does less than that server: one limit, no metrics, no spans, and it runs on
//! a better allocator. So what is measured here is less than what Limitador's
//! users pay.

use std::collections::HashMap;
use std::net::SocketAddr;

use limitador::RateLimiter;
use limitador::limit::{Context, Limit};
use tonic::{Request, Response, Status};

use super::bare_tonic::{RateLimitService, serve_with};
use super::messages::{Descriptor, RateLimitRequest, RateLimitResponse};
use crate::rule_text::DOMAIN;

/// More than any run asks for, in a window that outlasts it.
const REQUESTS_PER_DAY: u64 = 1_000_000_000_000;
const DAY_SECONDS: u64 = 24 * 60 * 60;
/// Counters held: above the number of keys in any table.
const COUNTERS_MAX: u64 = 2_000_000;

struct Limitador(RateLimiter);

#[tonic::async_trait]
impl RateLimitService for Limitador {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        let mut context = Context::default();
        let descriptors = request.descriptors.into_iter().map(values).collect();
        context.list_binding("descriptors".to_owned(), descriptors);
        let hits = u64::from(request.hits_addend.max(1));
        let domain = request.domain.into();
        let checked = self.0.check_rate_limited_and_update(&domain, &context, hits);
        let checked = checked.map_err(|error| Status::unavailable(error.to_string()))?;
        let overall_code = match checked.limited {
            true => RateLimitResponse::OVER_LIMIT,
            false => RateLimitResponse::OK,
        };
        Ok(Response::new(RateLimitResponse { overall_code }))
    }
}

fn values(descriptor: Descriptor) -> HashMap<String, String> {
    descriptor.entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
}

pub(super) async fn serve(announce: impl Fn(&str, SocketAddr)) -> anyhow::Result<()> {
    let limiter = RateLimiter::new(COUNTERS_MAX);
    let user = "descriptors[0].user".try_into();
    let user = user.map_err(|error| anyhow::anyhow!("limitador cannot read this: {error}"))?;
    limiter.add_limit(Limit::new(DOMAIN, REQUESTS_PER_DAY, DAY_SECONDS, [], [user]));
    serve_with(Limitador(limiter), announce).await
}
