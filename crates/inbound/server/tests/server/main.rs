//! Tests of the server with real sockets and clients.

mod client;

mod connections;
mod draining;
mod encryption;
mod frames;
mod requests;
mod slow_clients;
