//! Real sockets, real clients: what the server does with connections.

mod client;

mod connections;
mod draining;
mod encryption;
mod requests;
