//! A tonic server as tonic's own examples set it up, which answers OK.

use std::net::SocketAddr;

use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::ANYWHERE;
use super::messages::{RateLimitRequest, RateLimitResponse};

/// What tonic generates for the service.
mod generated {
    #![allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/envoy.service.ratelimit.v3.RateLimitService.rs"));
}

pub(super) use generated::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};

/// Decides nothing.
#[derive(Debug)]
pub(crate) struct AlwaysOk;

#[tonic::async_trait]
impl RateLimitService for AlwaysOk {
    async fn should_rate_limit(
        &self,
        _request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(RateLimitResponse { overall_code: RateLimitResponse::OK }))
    }
}

/// The service by itself, without a server around it.
pub(crate) fn service() -> RateLimitServiceServer<AlwaysOk> {
    RateLimitServiceServer::new(AlwaysOk)
}

pub(super) async fn serve(announce: impl Fn(&str, SocketAddr)) -> anyhow::Result<()> {
    serve_with(AlwaysOk, announce).await
}

/// Serves any implementation of the service.
pub(super) async fn serve_with(
    service: impl RateLimitService,
    announce: impl Fn(&str, SocketAddr),
) -> anyhow::Result<()> {
    let incoming = TcpIncoming::bind(ANYWHERE)?.with_nodelay(Some(true));
    announce("grpc", incoming.local_addr()?);
    let server = Server::builder().add_service(RateLimitServiceServer::new(service));
    Ok(server.serve_with_incoming(incoming).await?)
}
