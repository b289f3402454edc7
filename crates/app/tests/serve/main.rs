//! `tidegate serve` as its users meet it: the real binary, on free ports.

mod process;

mod certificates;
mod client;
mod upstream;

mod access;
mod access_log;
mod compat;
mod control;
mod decision_log;
mod documents;
mod durable_queue;
mod encryption;
mod gateway;
mod operating;
mod outages;
mod redis;
mod regions;
mod reloading;
mod serving;
mod sight;
mod spans;
mod starting;
mod statistics;
mod turns;
