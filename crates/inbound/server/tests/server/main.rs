//! Tests of the server with real sockets and clients.

mod client;

mod connections;
mod draining;
mod encryption;
mod frames;
mod guard;
mod long_responses;
mod requests;
mod slow_clients;
